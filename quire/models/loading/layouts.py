"""Bringing a tensor from its file's layout to the one that quire holds, and back."""

from dataclasses import replace

import torch
from torch import Tensor

from quire.core.errors import ConfigError
from quire.core.ggml_types import PACKED
from quire.layers.stored import StoredTensor
from quire.ops.reference.gguf.dequantize import dequantize
from quire.spec.layout import (
    AsStored,
    FramesApart,
    Layout,
    MinusOne,
    Reshaped,
    RowOrder,
    StackedRows,
    Transposed,
    TransposedHeads,
)
from quire.spec.share import AxisShare, Share


def laid_out(stored: StoredTensor, layout: Layout) -> StoredTensor:
    """The tensor as quire holds it; where the file has that already, the file's own pages."""
    match layout:
        case AsStored() | Reshaped():
            return stored if isinstance(layout, AsStored) else _as_matrix(stored, layout.rows)
        case Transposed():
            return _transposed(stored)
        case MinusOne():
            return replace(stored, kind="float32", data=_values(stored) - 1)
        case StackedRows():
            return _unstacked(stored, layout)
        case TransposedHeads() | FramesApart():
            return _turned_heads(stored) if isinstance(layout, TransposedHeads) else _joined_frames(stored)
        case _:
            return _reordered(stored, layout.source_rows())


def laid_out_share(stored: StoredTensor, layout: Layout, share: Share) -> StoredTensor:
    """What a rank takes of the tensor as quire holds it. Only that is read of a file, except where packed rows have to
    be turned into columns.
    """
    is_turned = isinstance(layout, StackedRows) and layout.transposed
    if isinstance(layout, RowOrder | StackedRows) and not is_turned and share.rows is not None:
        rows = layout.source_rows()
        if len(rows) == share.rows.whole:
            flat = _flat(stored) if isinstance(layout, StackedRows) else stored
            return _cut_columns(_taken_rows(flat, [rows[place] for place in share.rows.places()]), share.columns)
    return _cut_columns(_cut_rows(laid_out(stored, layout), share.rows), share.columns)


def as_file(values: Tensor, layout: Layout) -> Tensor:
    """Plain numbers in quire's layout as a file has them: the inverse of `laid_out`."""
    match layout:
        case AsStored() | Reshaped():
            return values if isinstance(layout, AsStored) else values.reshape(layout.shape)
        case Transposed():
            return values.t()
        case MinusOne():
            return values + 1
        case TransposedHeads() | FramesApart():
            return _apart(values, layout)
        case StackedRows():
            rows = torch.tensor(layout.source_rows(), device=values.device)
            ordered = values.index_select(0, torch.argsort(rows))
            stacked = ordered.view(layout.experts, -1, *values.shape[1:])
            return stacked.transpose(1, 2) if layout.transposed else stacked
        case _:
            rows = torch.tensor(layout.source_rows(), device=values.device)
            return values.index_select(0, torch.argsort(rows))


def _apart(values: Tensor, layout: TransposedHeads | FramesApart) -> Tensor:
    if isinstance(layout, TransposedHeads):
        return values.reshape(layout.num_heads, -1, values.shape[1]).transpose(1, 2)
    rows, channels, height, width = layout.kernel
    return values.reshape(rows, channels, layout.frames, height, width).permute(2, 0, 1, 3, 4)


def _as_matrix(stored: StoredTensor, rows: int) -> StoredTensor:
    """Packed numbers are unpacked."""
    data = (_values(stored) if stored.is_quantized else stored.data).reshape(rows, -1)
    return replace(stored, kind="float32" if stored.is_quantized else stored.kind, shape=tuple(data.shape), data=data)


def _joined_frames(stored: StoredTensor) -> StoredTensor:
    """The kernels of all frames, one behind the other, as one matrix of whole patches."""
    packed = stored.is_quantized
    kernels = (_values(stored) if packed else stored.data).view(stored.shape)
    data = kernels.permute(1, 2, 0, 3, 4).reshape(stored.shape[1], -1)
    return replace(stored, kind="float32" if packed else stored.kind, shape=tuple(data.shape), data=data)


def _unstacked(stored: StoredTensor, layout: StackedRows) -> StoredTensor:
    """Packed rows already lie one below the other."""
    if layout.transposed:
        experts, columns, rows = stored.shape
        stored = replace(stored, shape=(experts, rows, columns), data=stored.data.transpose(1, 2))
    flat = _flat(stored)
    return flat if layout.parts == 1 else _reordered(flat, layout.source_rows())


def _flat(stored: StoredTensor) -> StoredTensor:
    """All experts' rows one below the other."""
    flat = replace(stored, shape=(stored.shape[0] * stored.shape[1], *stored.shape[2:]))
    return flat if stored.is_quantized else replace(flat, data=stored.data.flatten(0, 1))


def _taken_rows(stored: StoredTensor, rows: list[int]) -> StoredTensor:
    data = stored.data.index_select(0, torch.tensor(rows, device=stored.data.device))
    return replace(stored, shape=(len(rows), *stored.shape[1:]), data=data)


def _cut_rows(stored: StoredTensor, share: AxisShare | None) -> StoredTensor:
    if share is None:
        return stored
    slices = [stored.data[taken.start : taken.stop] for taken in share.ranges]
    data = slices[0] if len(slices) == 1 else torch.cat(slices)
    return replace(stored, shape=(share.size, *stored.shape[1:]), data=data)


def _cut_columns(stored: StoredTensor, share: AxisShare | None) -> StoredTensor:
    if share is None:
        return stored
    (taken,) = share.ranges
    start, stop = taken.start, taken.stop
    if stored.is_quantized:
        kind = PACKED[stored.kind]
        if start % kind.block or stop % kind.block:
            raise ConfigError(
                f"{stored.name} is {stored.kind}, whose columns come in blocks of {kind.block}, and a rank's part "
                f"would be columns {start} to {stop} of {share.whole}; use a --tensor-parallel-size whose parts hold "
                "whole blocks, or plain weights."
            )
        start, stop = kind.bytes_of(start), kind.bytes_of(stop)
    return replace(stored, shape=(stored.shape[0], len(taken)), data=stored.data[:, start:stop])


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
