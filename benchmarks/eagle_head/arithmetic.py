"""What the model and its head both compute, in plain torch: gradients may flow through it."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def angles(length: int, size: int, theta: float, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    frequencies = theta ** (-torch.arange(0, size, 2, device=device) / size)
    turns = torch.outer(torch.arange(length, device=device).float(), frequencies).repeat(1, 2)
    return turns.cos().to(dtype), turns.sin().to(dtype)


def turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat((-second, first), -1) * sin


def places_behind(x: Tensor, count: int, dim: int = 2) -> Tensor:
    """Each place has what stood `count` places before it; the first have nothing."""
    return x if not count else x.roll(count, dim).index_fill(dim, torch.arange(count, device=x.device), 0.0)
