"""Giving back to the system, and to the device, what nothing holds any more. No torch unless it is there."""

import ctypes
import gc
from contextlib import suppress

from quire.worker.device import may_have_gpu, this_device
from quire.worker.out_of_memory import free_cached_memory


def give_back_freed() -> None:
    """Collect also what was there when an engine had started, which no collection looks at otherwise."""
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if was_frozen:
        gc.freeze()
    with suppress(AttributeError):  # of glibc
        ctypes.CDLL(None).malloc_trim(0)
    if may_have_gpu():
        free_cached_memory(this_device())
