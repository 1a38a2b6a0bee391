"""Numbers between host and device without waiting for the step that runs there."""

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(values: Sequence[object], dtype: torch.dtype, device: torch.device) -> Tensor:
    # a copy from ordinary memory would first wait for everything queued on a GPU
    return torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda").to(device, non_blocking=True)


def towards_host(tensor: Tensor) -> Tensor:
    """The tensor on the host, once the device has done what it was given so far."""
    if tensor.device.type != "cuda":
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    return host
