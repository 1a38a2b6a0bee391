"""experts_mlp on a GPU. Few tokens multiply pair by pair; more are grouped by expert, whose weights are read once.

Whatever the way, an expert's output for a token is rounded before it is weighted, and a token adds up its experts in
their order: what else is in the batch changes nothing but the order of sums within an output.
"""

import torch
from torch import Tensor

from quire.ops.cut_matrix import cut_rows
from quire.ops.lora_tensors import ExpertLora
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.add_lora import add_lora
from quire.ops.triton.card import card_of
from quire.ops.triton.expert_gemm import add_experts, multiply_down, multiply_up
from quire.ops.triton.expert_gemm_choices import Tile, choose_tile
from quire.ops.triton.expert_gemv import down_pairs, up_pairs
from quire.ops.triton.expert_stack import ExpertStack, PackedStack, stack_of
from quire.ops.triton.expert_tiles import expert_tiles
from quire.ops.triton.gated_activation import gated_activation
from quire.ops.triton.packed_expert_gemm import packed_multiply_down, packed_multiply_up
from quire.ops.triton.packed_expert_gemv import packed_down_pairs, packed_up_pairs

AnyStack = ExpertStack | PackedStack

MOST_TOKENS_BY_PAIRS = 4
"""Up to here a product of one row with CUDA cores reads as fast as memory gives."""


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
    size]; all of one dtype but ids and weights, and packed matrices.
    """
    x, ids, weights = x.contiguous(), ids.contiguous(), weights.contiguous()
    tokens, hidden = x.shape
    if not tokens:
        return torch.empty_like(x)
    above, below = stack_of(up, up_bias), stack_of(down, down_bias)
    # what multiplies inputs multiplies products with them as well, before a bias is added
    on_inputs, on_outputs = (weights, None) if weighs_input else (None, weights)
    experts = below.rows // hidden
    few_share_an_expert = tokens == 1 or 2 * ids.numel() <= experts  # else some are read again and again
    if lora is None and tokens <= MOST_TOKENS_BY_PAIRS and few_share_an_expert:
        inner = _up_pairs(x, ids, on_inputs, above, experts, activation, some_elsewhere=some_elsewhere)
        return _down_pairs(inner, ids, on_outputs, below, hidden, some_elsewhere=some_elsewhere)
    tile = choose_tile(card_of(x.device), ids.numel(), experts, x.itemsize)
    tiles = expert_tiles(ids, experts, tile.block_rows)  # has no place for experts that are elsewhere
    if lora is not None:
        inner = _adapted_up(tile, x, ids, tiles, above, activation, lora)
        outputs = _multiply_down(tile, inner, ids, tiles, below, hidden)
        outputs = add_lora(outputs, inner, lora.down, lora.pairs, None)
    else:
        inner = _multiply_up(tile, x, ids, on_inputs, tiles, above, experts, activation)
        outputs = _multiply_down(tile, inner, ids, tiles, below, hidden)
    return add_experts(outputs, on_outputs, ids.shape[1], ids if some_elsewhere else None)


def _up_pairs(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    up: AnyStack,
    experts: int,
    activation: str,
    *,
    some_elsewhere: bool,
) -> Tensor:
    multiply = packed_up_pairs if isinstance(up, PackedStack) else up_pairs
    return multiply(x, ids, weights, up, experts, activation, some_elsewhere=some_elsewhere)  # type: ignore[arg-type]


def _down_pairs(
    inner: Tensor, ids: Tensor, weights: Tensor | None, down: AnyStack, hidden: int, *, some_elsewhere: bool
) -> Tensor:
    multiply = packed_down_pairs if isinstance(down, PackedStack) else down_pairs
    return multiply(inner, ids, weights, down, hidden, some_elsewhere=some_elsewhere)  # type: ignore[arg-type]


def _multiply_up(
    tile: Tile,
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    tiles: Tensor,
    up: AnyStack,
    experts: int,
    activation: str,
) -> Tensor:
    if isinstance(up, PackedStack):
        return packed_multiply_up(tile.block_rows, tile.up, x, ids, weights, tiles, up, experts, activation)
    return multiply_up(tile, x, ids, weights, tiles, up, experts, activation)


def _multiply_down(tile: Tile, inner: Tensor, ids: Tensor, tiles: Tensor, down: AnyStack, hidden: int) -> Tensor:
    if isinstance(down, PackedStack):
        return packed_multiply_down(tile.block_rows, tile.down, inner, ids, tiles, down, hidden)
    return multiply_down(tile, inner, ids, tiles, down, hidden)


def _adapted_up(
    tile: Tile, x: Tensor, ids: Tensor, tiles: Tensor, up: AnyStack, activation: str, lora: ExpertLora
) -> Tensor:
    """Adapters join before the activation, so the gates and ups of each pair are there one by one.

    They change experts that are modules of their own, and those have no biases and are not in MXFP4.
    """
    assert up.bias is None, "adapters of experts with biases"
    given = x.repeat_interleave(ids.shape[1], dim=0)
    size = lora.down.down.shape[3]  # inputs of down
    halves = [_multiply_down(tile, given, ids, tiles, half, size) for half in _gates_and_ups(up)]
    above = add_lora(torch.cat(halves, dim=-1), given, lora.up, lora.pairs, None)
    return gated_activation(above, activation)


def _gates_and_ups(up: AnyStack) -> list[AnyStack]:
    if isinstance(up, PackedStack):
        half = up.rows // 2
        return [PackedStack(cut_rows(up.matrix, rows), None) for rows in (slice(0, half), slice(half, up.rows))]
    assert up.scales is None, "adapters of experts in MXFP4"
    return [ExpertStack(half, None, None) for half in torch.chunk(up.values, 2)]
