"""dequantize: the values of rows in any packed ggml type. The definition that kernels are compared with."""

from collections.abc import Callable

import torch
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.core.ggml_types import PACKED
from quire.ops.reference.gguf import iq1, iq2, iq3, iq4, k_quants, legacy, microscaling, ternary

_ELEMENTS_AT_ONCE = 2**20
"""Intermediate values are several times as large as the result. Pieces of this size were two to three times as fast
as all at once (Q4_K and Q8_0 of 2048 × 4096 on two cores), and smaller ones no faster."""

# Each takes uint8 [blocks, bytes of a block] and returns float32 [blocks, elements of a block].
_BLOCKS: dict[str, Callable[[Tensor], Tensor]] = {
    "Q4_0": legacy.q4_0,
    "Q4_1": legacy.q4_1,
    "Q5_0": legacy.q5_0,
    "Q5_1": legacy.q5_1,
    "Q8_0": legacy.q8_0,
    "Q2_K": k_quants.q2_k,
    "Q3_K": k_quants.q3_k,
    "Q4_K": k_quants.q4_k,
    "Q5_K": k_quants.q5_k,
    "Q6_K": k_quants.q6_k,
    "Q8_K": k_quants.q8_k,
    "IQ1_S": iq1.iq1_s,
    "IQ1_M": iq1.iq1_m,
    "IQ2_XXS": lambda blocks: iq2.iq2_xxs(blocks).values(),
    "IQ2_XS": lambda blocks: iq2.iq2_xs(blocks).values(),
    "IQ2_S": lambda blocks: iq2.iq2_s(blocks).values(),
    "IQ3_XXS": lambda blocks: iq3.iq3_xxs(blocks).values(),
    "IQ3_S": lambda blocks: iq3.iq3_s(blocks).values(),
    "IQ4_NL": iq4.iq4_nl,
    "IQ4_XS": iq4.iq4_xs,
    "TQ1_0": ternary.tq1_0,
    "TQ2_0": ternary.tq2_0,
    "MXFP4": microscaling.mxfp4,
    "NVFP4": microscaling.nvfp4,
}

TYPES = tuple(_BLOCKS)
"""Every type that can be dequantized."""


def dequantize(data: Tensor, ggml_type: str, out_dtype: torch.dtype = torch.float32) -> Tensor:
    """uint8 [rows, bytes of a row] to [rows, columns], computed in float32 and rounded once to `out_dtype`."""
    function = _BLOCKS.get(ggml_type)
    if function is None:
        raise CheckpointError(f"tensors of type {ggml_type!r} cannot be dequantized; known are {', '.join(TYPES)}.")
    kind = PACKED[ggml_type]
    if data.dtype != torch.uint8 or data.dim() != 2 or data.shape[1] % kind.num_bytes:
        raise CheckpointError(
            f"{ggml_type} is dequantized from rows of bytes, a multiple of {kind.num_bytes} each, "
            f"not from {data.dtype} of shape {list(data.shape)}."
        )
    num_rows, blocks_per_row = data.shape[0], data.shape[1] // kind.num_bytes
    columns = blocks_per_row * kind.block
    result = torch.empty(num_rows, columns, dtype=out_dtype, device=data.device)
    if result.numel() == 0:
        return result
    step = max(1, _ELEMENTS_AT_ONCE // columns)
    for start in range(0, num_rows, step):
        rows = data[start : start + step]
        result[start : start + step] = function(rows.reshape(-1, kind.num_bytes)).view(-1, columns)
    return result
