"""GPTQ: codes column by column, where the columns that follow make up for what each one loses.

How much of it they can make up for, the inputs on the calibration text tell.
"""

import torch
from torch import Tensor

from quire.core.errors import QuireError
from quire.quantize.grid import Grid, Scaling, in_groups, search

_DAMPING = 0.01
"""Of the mean of the Gram matrix's diagonal, added to it, so that it can be inverted."""
_MOST_DAMPING = 1.0
_AT_ONCE = 64
"""Columns whose errors are kept before they are spread over all that follow."""


def gptq(
    weight: Tensor, gram: Tensor, size: int, grid: Grid, dtype: torch.dtype, *, act_order: bool
) -> tuple[Tensor, Scaling]:
    """Codes [rows, columns] and their scaling, of a weight whose inputs x have the Gram matrix xᵀx.

    With `act_order` the columns that matter most come first, and groups keep the scales of the weight as it was.
    """
    weight, gram = weight.clone(), gram.clone()
    unused = gram.diagonal() == 0
    gram.diagonal()[unused] = 1
    weight[:, unused] = 0
    importance = gram.diagonal().clone()
    order = torch.argsort(importance, descending=True) if act_order else torch.arange(len(gram), device=gram.device)
    scaling = search(in_groups(weight, size), grid, dtype, importance)
    factor = _inverse_factor(gram[order][:, order])
    rest = weight.t()[order]  # a column a row, so that each lies together
    codes = torch.empty_like(rest)
    places = order.tolist()
    for first in range(0, len(places), _AT_ONCE):
        last = min(first + _AT_ONCE, len(places))
        errors = torch.empty_like(rest[first:last])
        for place in range(first, last):
            column, group = places[place], places[place] // size
            if not act_order and column % size == 0:
                _rescale(scaling, group, rest[place : place + size].t(), importance[place : place + size], grid, dtype)
            scale, zero = scaling.scales[:, group], scaling.zeros[:, group]
            codes[column] = grid.codes(rest[place] / scale + zero)
            error = (rest[place] - (codes[column] - zero) * scale) / factor[place, place]
            rest[place:last] -= factor[place, place:last].unsqueeze(1) * error
            errors[place - first] = error
        rest[last:] -= factor[first:last, last:].t() @ errors
    return codes.t(), scaling


def _rescale(scaling: Scaling, group: int, weight: Tensor, importance: Tensor, grid: Grid, dtype: torch.dtype) -> None:
    """Give a group the scaling of its weights as they are by now."""
    now = search(in_groups(weight.contiguous(), weight.shape[1]), grid, dtype, importance)
    scaling.scales[:, group], scaling.zeros[:, group] = now.scales[:, 0], now.zeros[:, 0]


def _inverse_factor(gram: Tensor) -> Tensor:
    """The upper Cholesky factor of the inverse, of a matrix damped until it has one."""
    damping, mean = _DAMPING, gram.diagonal().mean()
    while damping <= _MOST_DAMPING:
        damped = gram + torch.eye(len(gram), device=gram.device) * mean * damping
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            upper: Tensor
            upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed:
                return upper
        damping *= 10
    raise QuireError("the inputs of a matrix are not finite on the calibration text; give another with --calibration.")
