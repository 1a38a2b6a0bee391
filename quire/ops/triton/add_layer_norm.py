"""add_layer_norm on a GPU: the residual stream is read and written once, its layer norm comes out of the same pass."""

from torch import Tensor

from quire.ops.triton.norm_rows import add_norm_rows


def add_layer_norm(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """As `add_norm_rows` takes them."""
    return add_norm_rows(x, added, weight, bias, eps, is_layer=True)
