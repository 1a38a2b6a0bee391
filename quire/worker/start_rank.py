"""From a checkpoint to the worker of one rank: it meets the others, takes its part of the model and runs what it is
given."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.observe.start_clock import StartClock
from quire.worker.device import rank_device

if TYPE_CHECKING:
    from quire.parallel.group import Group
    from quire.worker.start import Grammars, Progress
    from quire.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank's worker, and its bond with the others."""

    worker: "Worker"
    group: "Group"

    def abandon(self) -> None:
        """Another rank is gone: what waits for it is to end."""
        self.group.abandon()

    def leave(self) -> None:
        """Let go of the other ranks, in whatever state they are."""
        self.group.close()


def start_other_rank(
    path: Path, asked: EngineConfig, device: DeviceFacts, rank: int, meeting: str, *, seed: int = 0
) -> Rank:
    """In a process that knows only what was asked for, and which device the first rank resolved that for."""
    from quire.models.loading.header import read_model_facts

    resolved = resolve(asked, read_model_facts(str(path), impl=asked.model.model_impl), device)
    return start_rank(path, resolved, rank, meeting, seed=seed)


def start_rank(
    path: Path,
    resolved: Resolved,
    rank: int,
    meeting: str,
    *,
    seed: int = 0,
    progress: "Progress | None" = None,
    grammars: "Grammars | None" = None,
    clock: StartClock | None = None,
) -> Rank:
    """Of the model at `path`; ranks find each other at the file `meeting`. Only the first needs `grammars`."""
    import torch

    from quire.parallel.meeting import meet
    from quire.worker.start import start_worker

    clock = clock or StartClock()
    clock.done("importing torch")
    device = rank_device(rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # kernels are launched where the current device is
    group = meet(rank, resolved.tensor_parallel_size, meeting, device)
    clock.done("meeting other ranks")
    try:
        # nothing is loaded in the background: a rank that waits for a layer would keep the others waiting in a step
        worker = start_worker(
            path,
            resolved,
            device=device,
            seed=seed,
            progress=progress,
            grammars=grammars,
            clock=clock,
            group=group,
        )
    except BaseException:
        group.close()
        raise
    return Rank(worker, group)
