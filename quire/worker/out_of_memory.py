"""Telling a device that ran out of memory from other errors, without keeping alive what filled it."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from quire.core.errors import OutOfDeviceMemory

if TYPE_CHECKING:
    import torch

Result = TypeVar("Result")

_SIGNS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""How libraries that take memory past torch's allocator say it: drivers, graphs, compiled kernels, workspaces."""
_MOST_CHARACTERS = 300


def is_out_of_memory(error: Exception) -> bool:
    torch = sys.modules.get("torch")  # where nobody has imported it, it has not run out of memory
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def telling_out_of_memory(compute: Callable[[], Result]) -> Result:
    """What `compute` returns; raises an OutOfDeviceMemory in place of every way a device says that it is full."""
    try:
        return compute()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        told = str(error)[:_MOST_CHARACTERS]
    # raised here, not above: an error that came out of the first would hold its frames, and they the step's tensors
    raise OutOfDeviceMemory(told)


def free_cached_memory(device: "torch.device") -> None:
    """Give what torch keeps for later back to the device, so that it can be cut anew."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
