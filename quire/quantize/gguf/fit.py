"""Scales and minima of groups of weights: of a few that are tried, those with the least squared error."""

import torch
from torch import Tensor

from quire.quantize.gguf.pack import divided

_SHRINKS = tuple(1.0 - step / 32 for step in range(-2, 11))
"""Of the range that codes cover, from a little more than all of the weights to 70 %."""


def symmetric(groups: Tensor, lowest: int, highest: int) -> Tensor:
    """Scales [groups] for groups [groups, elements] in codes from `lowest` to `highest`.

    The largest weight gets the lowest code, of which there is one more: its sign is the scale's.
    """
    largest = groups.gather(1, groups.abs().argmax(dim=1, keepdim=True)).squeeze(1)
    weigh = groups.square()
    best = torch.zeros_like(largest)
    least = torch.full_like(largest, float("inf"))
    for shrink in _SHRINKS:
        scale = largest * shrink / lowest
        codes = divided(groups, scale.unsqueeze(1).expand_as(groups)).round().clamp(lowest, highest)
        fitted = divided((weigh * groups * codes).sum(1), (weigh * codes * codes).sum(1))
        loss = (weigh * (fitted.unsqueeze(1) * codes - groups).square()).sum(1)
        better = loss < least
        best, least = torch.where(better, fitted, best), torch.where(better, loss, least)
    return best


def with_minimum(groups: Tensor, highest: int, *, free: bool = False) -> tuple[Tensor, Tensor]:
    """Scales and minima [groups] for weight = scale * code - minimum, codes from 0 to `highest`.

    Minima are not negative unless they are `free`.
    """
    magnitude = groups.square().mean(dim=1, keepdim=True).sqrt()
    weigh = magnitude + groups.abs()
    low, high = groups.amin(dim=1), groups.amax(dim=1)
    low = low if free else low.clamp_max(0)
    best_scale, best_minimum = torch.zeros_like(low), -low
    least = torch.full_like(low, float("inf"))
    for shrink in _SHRINKS:
        scale = (high - low) * shrink / highest
        codes = divided(groups - low.unsqueeze(1), scale.unsqueeze(1).expand_as(groups)).round().clamp(0, highest)
        fitted, minimum = _line(groups, codes, weigh, free=free)
        loss = (weigh * (fitted.unsqueeze(1) * codes - minimum.unsqueeze(1) - groups).square()).sum(1)
        better = loss < least
        least = torch.where(better, loss, least)
        best_scale, best_minimum = torch.where(better, fitted, best_scale), torch.where(better, minimum, best_minimum)
    return best_scale, best_minimum


def _line(groups: Tensor, codes: Tensor, weigh: Tensor, *, free: bool) -> tuple[Tensor, Tensor]:
    """The line scale * code - minimum through weights with the least weighed squares."""
    total = weigh.sum(1)
    sum_codes, sum_values = (weigh * codes).sum(1), (weigh * groups).sum(1)
    squares, products = (weigh * codes * codes).sum(1), (weigh * codes * groups).sum(1)
    spread = total * squares - sum_codes * sum_codes
    scale = divided(total * products - sum_codes * sum_values, spread.clamp_min(0))
    minimum = divided(scale * sum_codes - sum_values, total)
    if free:
        return scale, minimum
    below = minimum < 0
    return torch.where(below, divided(products, squares), scale), torch.where(below, 0.0, minimum)
