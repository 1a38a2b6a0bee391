"""experts_mlp: the definition."""

import torch
from torch import Tensor

from quire.ops.cut_matrix import cut_rows
from quire.ops.lora_tensors import AdapterRows, ExpertLora, LoraMatrix
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.add_lora import add_lora
from quire.ops.reference.gated_activation import gated_activation
from quire.ops.reference.linear import linear
from quire.ops.reference.quantized_linear import quantized_linear

Matrix = Tensor | QuantizedMatrix


def experts_mlp(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    up: Matrix,
    down: Matrix,
    activation: str,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    weighs_input: bool = False,
    lora: ExpertLora | None = None,
    some_elsewhere: bool = False,
) -> Tensor:
    """Each expert multiplies its tokens; a token adds up its experts in float32, in the order of `ids`."""
    tokens, hidden = x.shape
    top_k, count = ids.shape[1], _rows(down) // hidden
    size = _rows(up) // (2 * count)
    order = ids.flatten().argsort(stable=True)
    outputs = torch.empty((tokens * top_k, hidden), dtype=torch.float32, device=x.device)
    if some_elsewhere:
        elsewhere = ids.flatten() < 0
        outputs[elsewhere] = 0.0
        order = order[elsewhere.sum() :]  # they sort before all others
        ids = ids.flatten()[order]
    sizes = ids.flatten().bincount(minlength=count).tolist()
    for expert, places in enumerate(torch.split(order, sizes)):
        if len(places):
            given = x[places // top_k]
            if weighs_input:
                given = (given * weights.flatten()[places, None]).to(x.dtype)
            halves = [_multiply(given, up, up_bias, place * size, size) for place in (expert, count + expert)]
            above = torch.cat(halves, dim=-1)
            if lora is not None:
                above = _adapted(above, given, lora.up, lora.pairs, places)
            inner = gated_activation(above, activation)
            below = _multiply(inner, down, down_bias, expert * hidden, hidden)
            if lora is not None:
                below = _adapted(below, inner, lora.down, lora.pairs, places)
            outputs[places] = below.float()
    if weighs_input:
        weights = torch.ones_like(weights)
    total = torch.zeros((tokens, hidden), dtype=torch.float32, device=x.device)
    for rank in range(top_k):
        total += outputs.view(tokens, top_k, hidden)[:, rank] * weights[:, rank, None]
    return total.to(x.dtype)


def _adapted(y: Tensor, x: Tensor, matrix: LoraMatrix, pairs: AdapterRows, places: Tensor) -> Tensor:
    assert pairs.experts is not None
    rows = AdapterRows(pairs.slots[places], pairs.num_slots, pairs.experts[places], pairs.num_experts)
    return add_lora(y, x, matrix, rows, None)


def _rows(matrix: Matrix) -> int:
    return matrix.rows if isinstance(matrix, QuantizedMatrix) else matrix.shape[0]


def _multiply(x: Tensor, matrix: Matrix, bias: Tensor | None, first: int, count: int) -> Tensor:
    rows = slice(first, first + count)
    added = None if bias is None else bias[rows]
    if isinstance(matrix, QuantizedMatrix):
        return quantized_linear(x, cut_rows(matrix, rows), added)
    return linear(x, matrix[rows], added)
