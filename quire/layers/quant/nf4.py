"""bitsandbytes' NF4: codes of a matrix one after the other, a scale for every 64, and scales perhaps quantized too."""

import json
from collections.abc import Mapping
from math import gcd
from typing import Any

import torch
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.core.quantized import chunk_columns
from quire.ops.bit_planes import pack_bits
from quire.ops.code_tables import NF4
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.quantization import WeightScheme

_STATE = "weight.quant_state.bitsandbytes__nf4"


def read_nf4(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    state = _state(tensors[_STATE], name)
    rows, columns = _shape(state, tensors["weight"], name)
    block = _size(state, "blocksize", name)
    scales = _scales(state, tensors, name)
    if len(scales) != -(-rows * columns // block):
        raise CheckpointError(f"{name}: absmax has {len(scales)} scales for [{rows}, {columns}] in blocks of {block}.")
    table = tensors["weight.quant_map"].float()
    if not torch.allclose(table, torch.tensor(NF4, device=table.device), atol=1e-5):
        raise CheckpointError(f"{name}: quant_map is not NF4's; quire runs no other table of 16 values.")
    both = tensors["weight"].flatten()
    codes = torch.stack((both >> 4, both & 15), dim=-1).flatten()[: rows * columns].view(rows, columns)
    # blocks run on over the ends of rows: the columns that surely share a scale
    group = gcd(columns, block)
    firsts = torch.arange(0, rows * columns, group, device=both.device) // block
    packed = pack_bits(codes, 4, chunk_columns(group, columns))
    return QuantizedMatrix("nf4", packed, scales[firsts].view(rows, -1), None, columns, group)


def _state(stored: Tensor, name: str) -> dict[str, Any]:
    try:
        state = json.loads(bytes(stored.cpu().tolist()))
    except ValueError:
        state = None
    if not isinstance(state, dict):
        raise CheckpointError(f"{name}: {_STATE} holds no JSON object; the file is damaged.")
    return state


def _shape(state: dict[str, Any], weight: Tensor, name: str) -> tuple[int, int]:
    shape: Any = state.get("shape")
    is_shape = isinstance(shape, list) and len(shape) == 2 and all(isinstance(size, int) for size in shape)
    if not is_shape or shape[0] * shape[1] != 2 * weight.numel() or shape[1] % 2:
        raise CheckpointError(
            f"{name}: the quant_state says shape {str(shape)[:40]}, but the weight holds {2 * weight.numel()} codes; "
            "quire runs matrices with an even number of columns."
        )
    return shape[0], shape[1]


def _scales(state: dict[str, Any], tensors: Mapping[str, Tensor], name: str) -> Tensor:
    """float32, one each block."""
    scales = tensors["weight.absmax"]
    if scales.dtype != torch.uint8:
        return scales.float()
    outer, table = tensors.get("weight.nested_absmax"), tensors.get("weight.nested_quant_map")
    block, offset = _size(state, "nested_blocksize", name), state.get("nested_offset")
    if outer is None or table is None or not isinstance(offset, int | float) or len(outer) != -(-len(scales) // block):
        raise CheckpointError(
            f"{name}: absmax is quantized, but nested_absmax, nested_quant_map and nested_offset do not fit it; the "
            "file is damaged."
        )
    return table[scales.long()] * outer.repeat_interleave(block)[: len(scales)] + offset


def _size(state: dict[str, Any], field: str, name: str) -> int:
    size = state.get(field)
    if not isinstance(size, int) or isinstance(size, bool) or size < 2:
        raise CheckpointError(f"{name}: the quant_state gives {field} as {str(size)[:40]}, but it must be a size.")
    return size
