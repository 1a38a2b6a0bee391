"""Starting the native CPU core: its threads, and where packed weights are kept."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quire.config.resolved import Resolved
from quire.core.version import QUIRE_VERSION
from quire.models.loading.default_model import cache_folder
from quire.models.loading.folder import find_model
from quire.ops.cpu.machine import set_machine
from quire.ops.cpu.packed_cache import PackedCache, open_packed_cache
from quire.ops.cpu.threads import Placement, placement
from quire.worker.core_record import CoreRecord, load_record, save_record

if TYPE_CHECKING:
    from quire.ops.cpu import _core

_SMALLEST_KEPT = 32 * 2**20
"""Bytes of weights; packing fewer takes no longer than looking for a file."""
_FOR_THE_FRONT = 1
"""Cores left to the process that talks to clients, where there are enough."""


@dataclass(frozen=True, slots=True)
class CpuCore:
    """What a worker needs of the core."""

    machine: "_core.Machine"
    cache: PackedCache | None
    """None: packed weights stay in memory."""

    def loaded(self, *, worked: bool) -> None:
        """To be called when all weights are packed, or cannot be."""
        if self.cache is None:
            return
        if worked:
            self.cache.commit()
        else:
            self.cache.discard()

    def keep(self, record: CoreRecord) -> None:
        """Keep what was recorded of the model for later starts, beside its packed weights."""
        if self.cache is not None:
            save_record(record, self.cache.record_path)

    def record(self) -> CoreRecord | None:
        """What an earlier start kept, if its packed weights are there too."""
        return None if self.cache is None or self.cache.file is None else load_record(self.cache.record_path)


def start_core(path: Path, resolved: Resolved) -> CpuCore:
    """One pool of threads for the model at `path`, and its packed weights if an earlier start left them."""
    from quire.ops.cpu import _core

    chosen = _placement(resolved)
    _stay_with(chosen)
    machine = _core.Machine(chosen.threads, chosen.cpus, "")
    set_machine(machine)
    return CpuCore(machine, open_cache(path, resolved))


def _placement(resolved: Resolved) -> Placement:
    if resolved.cpu_threads is not None:
        return placement(resolved.cpu_threads)
    threads = placement(None, reserve=_FOR_THE_FRONT).threads // resolved.cpu_sharers
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return placement(max(1, min(threads, int(limit)) if limit.isdecimal() and int(limit) else threads))


def threads_of_rank(resolved: Resolved) -> int:
    """Threads of torch for each of the ranks that share this machine's cores."""
    threads = resolved.cpu_threads or _placement(resolved).threads
    return max(1, threads // resolved.num_ranks)


def _stay_with(chosen: Placement) -> None:
    """On several NUMA nodes, the thread that loads must be where the weights are to be, as those that compute are."""
    if chosen.cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, chosen.cpus)


def open_cache(path: Path, resolved: Resolved) -> PackedCache | None:
    """The packed weights of the model at `path`, for one load; None where they are not worth a file."""
    if resolved.weight_bytes < _SMALLEST_KEPT or resolved.random_weights:
        return None
    found = find_model(path)
    # a config.json says how quantized tensors are to be read
    files = [*found.safetensors, found.config] if found.gguf is None else [found.gguf]
    kept = resolved.quantization or ("kept" if resolved.keep_packed else "expanded")
    return open_packed_cache(cache_folder().parent / "packed", files, f"{QUIRE_VERSION}, {kept}")
