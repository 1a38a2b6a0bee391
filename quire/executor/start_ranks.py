"""Which way an engine reaches the ranks of its model: processes of this host or of several, or actors of Ray."""

from pathlib import Path
from typing import TYPE_CHECKING

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolved import Resolved
from quire.executor.nodes import start_over_nodes
from quire.executor.process import ProcessExecutor, start_processes
from quire.observe.start_clock import StartClock

if TYPE_CHECKING:
    from quire.worker.start import Grammars
    from quire.worker.start_model import Progress


def start_ranks(
    path: Path,
    resolved: Resolved,
    asked: EngineConfig,
    device: DeviceFacts,
    *,
    file_bytes: int,
    seed: int = 0,
    progress: "Progress | None" = None,
    grammars: "Grammars | None" = None,
    clock: StartClock | None = None,
) -> ProcessExecutor:
    """An executor with the model at `path` over as many ranks as the settings say.

    `resolved` is what was `asked` for a rank's `device`; `file_bytes` are those of the model's weights
    and of what drafts for it.
    """
    on_ray = asked.parallel.distributed_executor_backend == "ray"
    if not on_ray and asked.parallel.nnodes == 1:
        return start_processes(
            path, resolved, asked, device, seed=seed, progress=progress, grammars=grammars, clock=clock
        )
    if on_ray:
        from quire.executor.ray import start_on_ray  # an extra, and slow to import
    return (start_on_ray if on_ray else start_over_nodes)(
        path,
        resolved,
        asked,
        device,
        file_bytes=file_bytes,
        seed=seed,
        progress=progress,
        grammars=grammars,
        clock=clock,
    )
