"""experts_mlp on a GPU. Few tokens multiply pair by pair; more are grouped by expert, whose weights are read once.

Whatever the way, an expert's output for a token is rounded before it is weighted, and a token adds up its experts in
their order: what else is in the batch changes nothing but the order of sums within an output.
"""

import torch
from torch import Tensor

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.card import card_of
from quire.ops.triton.expert_gemm import add_experts, multiply_down, multiply_up
from quire.ops.triton.expert_gemm_choices import choose_tile
from quire.ops.triton.expert_gemv import down_pairs, up_pairs
from quire.ops.triton.expert_stack import stack_of
from quire.ops.triton.expert_tiles import expert_tiles

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
    if tokens <= MOST_TOKENS_BY_PAIRS:
        inner = up_pairs(x, ids, on_inputs, above, experts, activation)
        return down_pairs(inner, ids, on_outputs, below, hidden)
    tile = choose_tile(card_of(x.device), ids.numel(), experts, x.itemsize)
    tiles = expert_tiles(ids, experts, tile.block_rows)
    inner = multiply_up(tile, x, ids, on_inputs, tiles, above, experts, activation)
    return add_experts(multiply_down(tile, inner, ids, tiles, below, hidden), on_outputs, ids.shape[1])
