"""row_max: the largest value of every row, and where it stands."""

from torch import Tensor


def row_max(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = x.max(dim=-1)
    return values, places
