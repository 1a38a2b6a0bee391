"""Overlapped launches: a GPU that can brings a kernel in while the one before it ends (programmatic dependent launch).

Between two kernels of a decode step the device is otherwise idle for about a microsecond, hundreds of times. A kernel
launched so must wait before it touches anything that an earlier one writes. All kernels of a layer wait, so a kernel
that has waited for the last one has waited for all.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor


def overlap(on: Tensor) -> dict[str, bool]:
    """How a kernel that begins with `wait_for_inputs` is launched beside `on`."""
    if on.is_cuda and _can_overlap(on.device):
        return {"overlapped": True, "launch_pdl": True}
    return {"overlapped": False}


@cache
def _can_overlap(device: torch.device) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)


@triton.jit
def wait_for_inputs(overlapped: tl.constexpr, early: tl.constexpr = True):
    """Until earlier kernels have written all they write.

    Where `early`, the next kernel may come in meanwhile, to wait for this one. Kernels that read as fast as memory
    gives do better without company.
    """
    if overlapped:
        if early:
            tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
