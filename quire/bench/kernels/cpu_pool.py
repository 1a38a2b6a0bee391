"""The threads that kernels are measured with: one pool for the native core, and as many for torch."""

import torch

from quire.core.errors import QuireError
from quire.ops.cpu import native
from quire.ops.cpu.machine import set_machine
from quire.ops.cpu.threads import placement


def start_pool(threads: int | None) -> str:
    """So many threads, or one on each physical core; returns what it is in words."""
    core = native.load()
    if core is None:
        raise QuireError("the native CPU core is not there, and it is what is measured; install quire with a compiler.")
    chosen = placement(threads)
    machine = core.Machine(chosen.threads, chosen.cpus, "")
    set_machine(machine)
    torch.set_num_threads(chosen.threads)
    return f"{chosen.threads} thread{'s' if chosen.threads != 1 else ''}, {machine.variant} kernels"
