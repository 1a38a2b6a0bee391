"""rope_angles as one call of the native core."""

import torch
from torch import Tensor

from quire.ops.cpu import native
from quire.ops.reference import rope_angles as reference


def rope_angles(positions: Tensor, frequencies: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    core = native.load()
    if core is None or not positions.is_contiguous() or not frequencies.is_contiguous():
        return reference.rope_angles(positions, frequencies, factor)
    tokens, half = positions.shape[0], frequencies.shape[-1]
    stride = half if frequencies.dim() == 2 else 0
    cos, sin = torch.empty((2, tokens, half)).unbind()
    core.rope_angles(
        positions.data_ptr(), tokens, frequencies.data_ptr(), stride, half, factor, cos.data_ptr(), sin.data_ptr()
    )
    return cos, sin
