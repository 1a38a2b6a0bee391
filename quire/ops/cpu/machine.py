"""The machine of this process: the one pool of threads, for ops that are called without one.

Two pools would take the cores from each other, so whoever starts the process's pool says so here.
"""

from typing import TYPE_CHECKING

from quire.ops.cpu import native

if TYPE_CHECKING:
    from quire.ops.cpu import _core


class _Process:
    machine: "_core.Machine | None" = None


def set_machine(machine: "_core.Machine") -> None:
    """From now on ops compute on this one."""
    _Process.machine = machine


def machine() -> "_core.Machine | None":
    """What was set, or else one of a single thread; None without the native core."""
    core = native.load()
    if core is None:
        return None
    if _Process.machine is None:
        _Process.machine = core.Machine(1, [], "")
    return _Process.machine
