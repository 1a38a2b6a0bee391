"""experts_mlp on a GPU. Few tokens multiply pair by pair; more are grouped by expert, whose weights are read once.

Whatever the way, an expert's output for a token is rounded before it is weighted, and a token adds up its experts in
their order: what else is in the batch changes nothing but the order of sums within an output.
"""

import torch
from torch import Tensor

from quire.ops.lora_tensors import ExpertLora
from quire.ops.triton.add_lora import add_lora
from quire.ops.triton.card import card_of
from quire.ops.triton.expert_gemm import add_experts, multiply_down, multiply_up
from quire.ops.triton.expert_gemm_choices import choose_tile
from quire.ops.triton.expert_gemv import down_pairs, up_pairs
from quire.ops.triton.expert_tiles import expert_tiles
from quire.ops.triton.gated_activation import gated_activation

MOST_TOKENS_BY_PAIRS = 4
"""Up to here few tokens share an expert, and a product of one row with CUDA cores reads as fast as memory gives."""


def experts_mlp(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str,
    lora: ExpertLora | None = None,
) -> Tensor:
    """x: [tokens, hidden], ids and weights: [tokens, top_k], up: [2 * experts * size, hidden], down: [experts * hidden,
    size]; all of one dtype but ids and weights.
    """
    x, ids, weights = x.contiguous(), ids.contiguous(), weights.contiguous()
    tokens, hidden = x.shape
    if not tokens:
        return torch.empty_like(x)
    if lora is None and tokens <= MOST_TOKENS_BY_PAIRS:
        return down_pairs(up_pairs(x, ids, up, down, activation), ids, weights, down, hidden)
    experts = down.shape[0] // hidden
    tile = choose_tile(card_of(x.device), ids.numel(), experts, x.itemsize)
    tiles = expert_tiles(ids, experts, tile.block_rows)
    if lora is None:
        inner = multiply_up(tile, x, ids, tiles, up, experts, activation)
        return add_experts(multiply_down(tile, inner, ids, tiles, down, hidden), weights)
    # adapters join before the activation, so the gates and ups of each pair are there one by one
    given, size = x.repeat_interleave(ids.shape[1], dim=0), up.shape[0] // (2 * experts)
    halves = [multiply_down(tile, given, ids, tiles, half, size) for half in torch.chunk(up, 2)]
    above = add_lora(torch.cat(halves, dim=-1), given, lora.up, lora.pairs, None)
    inner = gated_activation(above, activation)
    below = add_lora(multiply_down(tile, inner, ids, tiles, down, hidden), inner, lora.down, lora.pairs, None)
    return add_experts(below, weights)
