"""From what an earlier start kept of a model to a worker on the native core alone. No torch."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from quire.config.resolved import Resolved
from quire.worker.cpu_core import CpuCore, open_cache

if TYPE_CHECKING:
    from quire.worker.core_worker import CoreWorker
    from quire.worker.start import Grammars
    from quire.worker.worker import Worker

_log = logging.getLogger(__name__)


def start_core_worker(
    path: Path, resolved: Resolved, core: CpuCore, *, seed: int, grammars: "Grammars | None"
) -> "CoreWorker | None":
    """None where no earlier start has kept the model, or where torch is needed: to swap blocks, for adapters, or for
    drafts that are not looked up."""
    from quire.worker.speculative.core_drafting import CORE_METHODS, CoreDrafting

    record = core.record()
    drafts_by_torch = resolved.speculation is not None and resolved.speculation.method not in CORE_METHODS
    if drafts_by_torch or resolved.lora is not None:
        return None
    if record is None or core.cache is None or core.cache.file is None or resolved.kv.num_cpu_blocks:
        return None
    from quire.sampling.core_sampler import CoreSampler
    from quire.worker.core_memory import CoreMemory
    from quire.worker.core_model import CoreModel, programs_of
    from quire.worker.core_worker import CoreWorker

    memory = CoreMemory(resolved.kv, resolved.limits)
    if memory.groups != record.groups:
        return None
    try:
        model = CoreModel(programs_of(record, core.cache.file, memory), core.machine)
    except LookupError as error:
        _log.warning("the model is built from its modules, since its record is of no use: %s", error)
        return None

    def whole() -> "Worker":
        import torch

        from quire.worker.start import start_worker

        again = CpuCore(core.machine, open_cache(path, resolved))
        device = torch.device("cpu")
        return start_worker(path, resolved, device=device, seed=seed, grammars=grammars, core=again, memory=memory)

    sampler = CoreSampler(resolved.limits.max_num_seqs, record.vocabulary, seed, core.machine)
    drafting = None if resolved.speculation is None else CoreDrafting(resolved.speculation, memory)
    return CoreWorker(model, core.cache.file, sampler, memory, resolved.kv, whole, drafting)
