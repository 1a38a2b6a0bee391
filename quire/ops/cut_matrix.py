"""Cutting a QuantizedMatrix for the ranks of a tensor parallel model, and putting matrices one below the other."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quire.core.errors import ConfigError
from quire.core.quantized import PLANES, chunk_columns
from quire.ops.bit_planes import pack_bits, unpack_bits
from quire.ops.quantized_matrix import SUPER_COLUMNS, QuantizedMatrix


def cut_rows(matrix: QuantizedMatrix, rows: slice | Tensor) -> QuantizedMatrix:
    """Some rows, or all of them in another order."""
    planes: dict[str, Any] = {name: plane[rows].contiguous() for name, plane in matrix.row_planes().items()}
    return replace(matrix, **planes)


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
    if matrix.super_scales is not None and (start % SUPER_COLUMNS or end % SUPER_COLUMNS):
        raise ConfigError(
            f"columns {start} to {end} cut through blocks of {SUPER_COLUMNS} columns that share a scale; use a "
            "--tensor-parallel-size whose parts hold whole blocks."
        )
    size = width if inside else group
    groups = slice(start // group, -(-end // group))
    supers = slice(start // SUPER_COLUMNS, end // SUPER_COLUMNS)
    planes = matrix.row_planes()
    cut: dict[str, Any] = {
        name: planes[name][:, groups].contiguous() for name in ("scales", "zeros", "mins") if name in planes
    }
    cut |= {name: planes[name][:, supers].contiguous() for name in ("super_scales", "super_mins") if name in planes}
    low_bits, high_bits = PLANES[matrix.codes]
    cut["values"] = _cut_plane(matrix.values, low_bits, matrix.chunk, start, end, size)
    if matrix.high is not None:
        cut["high"] = _cut_plane(matrix.high, high_bits, matrix.chunk, start, end, size)
    return replace(matrix, **cut, columns=width, group=size)


def stack_rows(matrices: Sequence[QuantizedMatrix]) -> QuantizedMatrix:
    """Matrices that `stack_together`, one below the other."""
    first = matrices[0]
    if len(matrices) == 1:
        return first
    planes: dict[str, Any] = {
        name: torch.cat([each.row_planes()[name] for each in matrices]) for name in first.row_planes()
    }
    input_scales = [each.input_scale.flatten() for each in matrices if each.input_scale is not None]
    # x is quantized once for all of them: by the scale that clips none of it
    return replace(first, **planes, input_scale=torch.cat(input_scales).amax() if input_scales else None)


def stack_together(a: QuantizedMatrix, b: QuantizedMatrix) -> bool:
    """Whether two can be one matrix: the same codes, planes, groups, order of columns and activations."""
    kinds = [{name: plane.dtype for name, plane in each.row_planes().items()} for each in (a, b)]
    alike = (a.codes, a.group, a.activations, kinds[0]) == (b.codes, b.group, b.activations, kinds[1])
    if a.order is None or b.order is None:
        return alike and a.order is b.order
    return alike and torch.equal(a.order, b.order)


def _cut_plane(plane: Tensor, bits: int, chunk: int, start: int, end: int, group: int) -> Tensor:
    if bits == 8:
        return plane[:, start:end].contiguous()
    return pack_bits(unpack_bits(plane, bits, chunk)[:, start:end], bits, chunk_columns(group, end - start))
