"""experts_mlp on a GPU. Few tokens multiply pair by pair; more are grouped by expert, whose weights are read once.

Whatever the way, an expert's output for a token is rounded before it is weighted, and a token adds up its experts in
their order: what else is in the batch changes nothing but the order of sums within an output.
"""

import torch
from torch import Tensor

from quire.ops.lora_tensors import ExpertLora
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.add_lora import add_lora
from quire.ops.triton.card import card_of
from quire.ops.triton.expert_gemm import add_experts, multiply_down, multiply_up
from quire.ops.triton.expert_gemm_choices import Tile, choose_tile
from quire.ops.triton.expert_gemv import down_pairs, up_pairs
from quire.ops.triton.expert_stack import ExpertStack, stack_of
from quire.ops.triton.expert_tiles import expert_tiles
from quire.ops.triton.gated_activation import gated_activation

MOST_TOKENS_BY_PAIRS = 4
"""Up to here few tokens share an expert, and a product of one row with CUDA cores reads as fast as memory gives."""


def experts_mlp(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    up: Tensor | QuantizedMatrix,
    down: Tensor | QuantizedMatrix,
    activation: str,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    weighs_input: bool = False,
    lora: ExpertLora | None = None,
    some_elsewhere: bool = False,
) -> Tensor:
    """x: [tokens, hidden], ids and weights: [tokens, top_k], up: [2 * experts * size, hidden], down: [experts * hidden,
    size]; all of one dtype but ids and weights, and matrices in MXFP4.
    """
    x, ids, weights = x.contiguous(), ids.contiguous(), weights.contiguous()
    tokens, hidden = x.shape
    if not tokens:
        return torch.empty_like(x)
    above, below = stack_of(up, up_bias), stack_of(down, down_bias)
    # what multiplies inputs multiplies products with them as well, before a bias is added
    on_inputs, on_outputs = (weights, None) if weighs_input else (None, weights)
    experts = below.rows // hidden
    if lora is None and tokens <= MOST_TOKENS_BY_PAIRS:
        inner = up_pairs(x, ids, on_inputs, above, experts, activation, some_elsewhere=some_elsewhere)
        return down_pairs(inner, ids, on_outputs, below, hidden, some_elsewhere=some_elsewhere)
    tile = choose_tile(card_of(x.device), ids.numel(), experts, x.itemsize)
    tiles = expert_tiles(ids, experts, tile.block_rows)  # has no place for experts that are elsewhere
    if lora is not None:
        inner = _adapted_up(tile, x, ids, tiles, above, activation, lora)
        outputs = multiply_down(tile, inner, ids, tiles, below, hidden)
        outputs = add_lora(outputs, inner, lora.down, lora.pairs, None)
    else:
        inner = multiply_up(tile, x, ids, on_inputs, tiles, above, experts, activation)
        outputs = multiply_down(tile, inner, ids, tiles, below, hidden)
    return add_experts(outputs, on_outputs, ids.shape[1], ids if some_elsewhere else None)


def _adapted_up(
    tile: Tile, x: Tensor, ids: Tensor, tiles: Tensor, up: ExpertStack, activation: str, lora: ExpertLora
) -> Tensor:
    """Adapters join before the activation, so the gates and ups of each pair are there one by one.

    They change experts that are modules of their own, and those have plain numbers and no biases.
    """
    assert up.scales is None, "adapters of packed experts"
    assert up.bias is None, "adapters of experts with biases"
    given = x.repeat_interleave(ids.shape[1], dim=0)
    gates, ups = (ExpertStack(half, None, None) for half in torch.chunk(up.values, 2))
    size = lora.down.down.shape[3]  # inputs of down
    halves = [multiply_down(tile, given, ids, tiles, half, size) for half in (gates, ups)]
    above = add_lora(torch.cat(halves, dim=-1), given, lora.up, lora.pairs, None)
    return gated_activation(above, activation)
