"""Starting the native CPU core: its threads, and where packed weights are kept."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from quire.config.resolved import Resolved
from quire.ops.cpu.packing import Packing
from quire.ops.cpu.threads import placement

if TYPE_CHECKING:
    from quire.ops.cpu import _core


@dataclass(frozen=True, slots=True)
class CpuCore:
    """What a worker needs of the core."""

    machine: "_core.Machine"
    packing: Packing
    loaded: Callable[[], None]
    """To be called once all weights are packed."""


def start_core(resolved: Resolved, path: Path) -> CpuCore:
    """One pool of threads for the model at `path`."""
    from quire.ops.cpu import _core

    chosen = placement(resolved.cpu_threads)
    machine = _core.Machine(chosen.threads, chosen.cpus, "")
    # what is left to torch is small, and a second pool would take the cores from the first
    torch.set_num_threads(1)
    return CpuCore(machine, Packing(machine), lambda: None)
