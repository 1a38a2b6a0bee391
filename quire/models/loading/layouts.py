"""Bringing a tensor from its file's layout to the one that quire holds, and back."""

from dataclasses import replace

import torch
from torch import Tensor

from quire.layers.stored import StoredTensor
from quire.ops.reference.gguf.dequantize import dequantize
from quire.spec.layout import AsStored, Layout, MinusOne, StackedRows, Transposed, TransposedHeads


def laid_out(stored: StoredTensor, layout: Layout) -> StoredTensor:
    """The tensor as quire holds it; where the file has that already, the file's own pages."""
    match layout:
        case AsStored():
            return stored
        case Transposed():
            return _transposed(stored)
        case MinusOne():
            return replace(stored, kind="float32", data=_values(stored) - 1)
        case StackedRows():
            return _unstacked(stored, layout)
        case TransposedHeads():
            return _turned_heads(stored)
        case _:
            return _reordered(stored, layout.source_rows())


def as_file(values: Tensor, layout: Layout) -> Tensor:
    """Plain numbers in quire's layout as a file has them: the inverse of `laid_out`."""
    match layout:
        case AsStored():
            return values
        case Transposed():
            return values.t()
        case MinusOne():
            return values + 1
        case TransposedHeads():
            return values.reshape(layout.num_heads, -1, values.shape[1]).transpose(1, 2)
        case _:
            rows = torch.tensor(layout.source_rows(), device=values.device)
            return values.index_select(0, torch.argsort(rows))


def _unstacked(stored: StoredTensor, layout: StackedRows) -> StoredTensor:
    """Packed rows already lie one below the other."""
    flat = replace(stored, shape=(stored.shape[0] * stored.shape[1], *stored.shape[2:]))
    if not stored.is_quantized:
        flat = replace(flat, data=stored.data.flatten(0, 1))
    return flat if layout.parts == 1 else _reordered(flat, layout.source_rows())


def _reordered(stored: StoredTensor, rows: list[int]) -> StoredTensor:
    """A row is quantized for itself, so packed rows can be moved like any others."""
    data = stored.data.reshape(len(rows), -1)
    moved = data.index_select(0, torch.tensor(rows, device=data.device))
    return replace(stored, data=moved.reshape(stored.data.shape))


def _transposed(stored: StoredTensor) -> StoredTensor:
    """Packed rows cannot be turned into columns, so such a matrix is unpacked."""
    packed = stored.is_quantized
    data = _values(stored) if packed else stored.data
    return replace(stored, kind="float32" if packed else stored.kind, shape=stored.shape[::-1], data=data.t())


def _turned_heads(stored: StoredTensor) -> StoredTensor:
    """As a transposed matrix, head by head."""
    heads, columns, rows = stored.shape
    data = _values(stored) if stored.is_quantized else stored.data
    turned = data.view(stored.shape).transpose(1, 2).reshape(heads * rows, columns)
    return replace(
        stored, kind="float32" if stored.is_quantized else stored.kind, shape=(heads * rows, columns), data=turned
    )


def _values(stored: StoredTensor) -> Tensor:
    if stored.is_quantized:
        return dequantize(stored.data, stored.kind).view(stored.shape)
    return stored.data.float()
