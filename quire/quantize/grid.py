"""Scales and zero points of int8, int4 and FP8 weights: of those tried for each group, the ones that lose least."""

from dataclasses import dataclass

import torch
from torch import Tensor

_TINIEST = 1e-9
"""The least scale, so that a group of zeros stays zeros; bfloat16 and float32 hold it."""
_FP8_LARGEST = 448.0


@dataclass(frozen=True, slots=True)
class Grid:
    """Which numbers the codes of one kind can stand for, apart from scale and zero point."""

    lowest: float
    highest: float
    is_float: bool = False
    has_zeros: bool = False
    """Whether codes are unsigned and each group says which of them is 0."""
    shrinks: tuple[float, ...] = ()
    """Parts of the widest range that are tried; floats gain nothing by it, whose steps shrink with the weights."""

    def codes(self, values: Tensor) -> Tensor:
        """The nearest codes, as floats."""
        bounded = values.clamp(self.lowest, self.highest)
        return bounded.to(torch.float8_e4m3fn).float() if self.is_float else bounded.round()


_FINE = tuple(1.0 - step / 40 for step in range(4))
_COARSE = tuple(1.0 - step / 40 for step in range(15))
"""The best is seldom below 70 %."""

FP8 = Grid(-_FP8_LARGEST, _FP8_LARGEST, is_float=True)
INT8 = Grid(-127, 127, shrinks=_FINE)
INT4 = Grid(-8, 7, shrinks=_COARSE)
INT4_UNSIGNED = Grid(0, 15, has_zeros=True, shrinks=_COARSE)


@dataclass(frozen=True, slots=True)
class Scaling:
    """Of groups [rows, groups]: weight = (code - zero) * scale."""

    scales: Tensor
    """float32, but only values that the type they are stored in has."""
    zeros: Tensor
    """0 where codes are signed."""

    def codes(self, groups: Tensor, grid: Grid) -> Tensor:
        """[rows, groups, columns] to the nearest codes, as floats."""
        return grid.codes(groups / self.scales.unsqueeze(-1) + self.zeros.unsqueeze(-1))

    def meant(self, codes: Tensor) -> Tensor:
        return (codes - self.zeros.unsqueeze(-1)) * self.scales.unsqueeze(-1)


def in_groups(weight: Tensor, size: int) -> Tensor:
    """[rows, columns] to [rows, groups, size], which must divide the columns."""
    return weight.view(weight.shape[0], -1, size)


def widest(groups: Tensor, grid: Grid, dtype: torch.dtype, shrink: float = 1.0) -> Scaling:
    """The scaling that covers every weight of a group, or with `shrink` a part of that range."""
    if grid.has_zeros:
        low = groups.amin(dim=-1).clamp_max(0) * shrink
        high = groups.amax(dim=-1).clamp_min(0) * shrink
        scales = _stored((high - low) / grid.highest, dtype)
        return Scaling(scales, (-low / scales).round().clamp(grid.lowest, grid.highest))
    scales = _stored(groups.abs().amax(dim=-1) * shrink / grid.highest, dtype)
    return Scaling(scales, torch.zeros_like(scales))


def search(groups: Tensor, grid: Grid, dtype: torch.dtype, importance: Tensor | None = None) -> Scaling:
    """For each group the scaling with the least sum of squared errors, each weighed by its column's `importance`.

    Every candidate is a part of the widest range; its scale is then moved to the least-squares fit of its codes.
    """
    weigh = torch.ones_like(groups[:1]) if importance is None else importance.view(1, *groups.shape[1:])
    best = widest(groups, grid, dtype)
    if not grid.shrinks:
        return best
    least = _loss(groups, best, grid, weigh)
    for shrink in grid.shrinks:
        tried = widest(groups, grid, dtype, shrink)
        for candidate in (tried, _fitted(groups, tried, grid, dtype, weigh)):
            loss = _loss(groups, candidate, grid, weigh)
            better = loss < least
            least = torch.where(better, loss, least)
            scales = torch.where(better, candidate.scales, best.scales)
            best = Scaling(scales, torch.where(better, candidate.zeros, best.zeros))
    return best


def _fitted(groups: Tensor, scaling: Scaling, grid: Grid, dtype: torch.dtype, weigh: Tensor) -> Scaling:
    steps = scaling.codes(groups, grid) - scaling.zeros.unsqueeze(-1)
    scales = (weigh * groups * steps).sum(-1) / (weigh * steps * steps).sum(-1).clamp_min(_TINIEST)
    fits = scales > 0
    return Scaling(torch.where(fits, _stored(scales, dtype), scaling.scales), scaling.zeros)


def _loss(groups: Tensor, scaling: Scaling, grid: Grid, weigh: Tensor) -> Tensor:
    return (weigh * (scaling.meant(scaling.codes(groups, grid)) - groups).square()).sum(-1)


def _stored(scales: Tensor, dtype: torch.dtype) -> Tensor:
    """As the file will have them, so that codes are chosen for what is read back."""
    least = max(_TINIEST, torch.finfo(dtype).smallest_normal)
    return scales.clamp_min(least).to(dtype).float()
