"""Cutting a QuantizedMatrix for the ranks of a tensor parallel model, and putting matrices one below the other."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quire.core.errors import ConfigError
from quire.ops.nibbles import pack_nibbles, unpack_nibbles
from quire.ops.quantized_matrix import QuantizedMatrix, chunk_columns


def cut_rows(matrix: QuantizedMatrix, rows: slice | Tensor) -> QuantizedMatrix:
    """Some rows, or all of them in another order."""
    zeros = None if matrix.zeros is None else matrix.zeros[rows].contiguous()
    values, scales = matrix.values[rows].contiguous(), matrix.scales[rows].contiguous()
    return replace(matrix, values=values, scales=scales, zeros=zeros)


def cut_columns(matrix: QuantizedMatrix, start: int, end: int) -> QuantizedMatrix:
    """Columns from `start` up to `end`, which begin and end where groups do or lie in a single group."""
    group, width = matrix.group, end - start
    inside = start // group == (end - 1) // group
    if matrix.order is not None:
        raise ConfigError(
            "a matrix whose columns are sorted by act-order cannot be cut by columns, since each part would need "
            "scales of every group; run it on one device, or take a checkpoint without act-order (desc_act false)."
        )
    if not inside and (start % group or (end % group and end != matrix.columns)):
        raise ConfigError(
            f"columns {start} to {end} cut through groups of {group} columns that share a scale; use a "
            "--tensor-parallel-size whose parts hold whole groups."
        )
    groups = slice(start // group, -(-end // group))
    zeros = None if matrix.zeros is None else matrix.zeros[:, groups].contiguous()
    size = width if inside else group
    return replace(
        matrix,
        values=_values(matrix, start, end, size),
        scales=matrix.scales[:, groups].contiguous(),
        zeros=zeros,
        columns=width,
        group=size,
    )


def stack_rows(matrices: Sequence[QuantizedMatrix]) -> QuantizedMatrix:
    """Matrices that `stack_together`, one below the other."""
    first = matrices[0]
    if len(matrices) == 1:
        return first
    zeros = None if first.zeros is None else torch.cat([_given(each.zeros) for each in matrices])
    input_scales = [_given(each.input_scale).flatten() for each in matrices if each.input_scale is not None]
    return replace(
        first,
        values=torch.cat([each.values for each in matrices]),
        scales=torch.cat([each.scales for each in matrices]),
        zeros=zeros,
        # x is quantized once for all of them: by the scale that clips none of it
        input_scale=torch.cat(input_scales).amax() if input_scales else None,
    )


def stack_together(a: QuantizedMatrix, b: QuantizedMatrix) -> bool:
    """Whether two can be one matrix: the same codes, groups, order of columns and activations."""
    alike = (a.codes, a.group, a.activations, a.zeros is None, a.scales.dtype) == (
        *(b.codes, b.group, b.activations, b.zeros is None, b.scales.dtype),
    )
    if a.order is None or b.order is None:
        return alike and a.order is b.order
    return alike and torch.equal(a.order, b.order)


def _values(matrix: QuantizedMatrix, start: int, end: int, group: int) -> Tensor:
    if matrix.codes not in ("int4", "nf4"):
        return matrix.values[:, start:end].contiguous()
    codes = unpack_nibbles(matrix.values, matrix.chunk)[:, start:end]
    return pack_nibbles(codes, chunk_columns(group, end - start))


def _given(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor
