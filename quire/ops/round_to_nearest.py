"""Quantizing a matrix by rounding each weight to the nearest code, as `--quantization` does when it loads one."""

import torch
from torch import Tensor
from torch.nn import functional

from quire.core.quantized import Activations, Codes, chunk_columns
from quire.ops.bit_planes import pack_bits
from quire.ops.code_tables import FP4, NF4
from quire.ops.quantized_matrix import QuantizedMatrix

_LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0, "int4": 7.0, "nf4": 1.0, "fp4": 6.0}
_FLOATS = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
_UNSIGNED = {"int8": 255, "int4": 15}
_TINIEST = 1e-12
"""The least scale, so that a group of zeros stays zeros."""


def round_to_nearest(
    weight: Tensor,
    codes: Codes,
    group: int | None = None,
    *,
    with_zeros: bool = False,
    activations: Activations = "as they are",
    scale_dtype: torch.dtype = torch.float32,
) -> QuantizedMatrix:
    """A matrix [rows, columns] in codes, with a scale for every row and `group` columns; None: for every row.

    With zero points a group's codes reach from its smallest to its largest weight; else as far to both sides.
    """
    columns = weight.shape[1]
    size = group or columns
    groups = _in_groups(weight.float(), size)
    scales, zeros = _asymmetric(groups, codes) if with_zeros else (_symmetric(groups, codes), None)
    scales = scales.to(scale_dtype)
    spread = scales.float().unsqueeze(-1)
    rounded = _nearest(groups / spread if zeros is None else groups / spread + zeros.unsqueeze(-1), codes, zeros)
    values = rounded.flatten(1)[:, :columns]
    if codes in ("int4", "nf4", "fp4"):
        values = pack_bits(values, 4, chunk_columns(size, columns))
    held = None if zeros is None else zeros.to(torch.uint8)
    return QuantizedMatrix(codes, values.contiguous(), scales, held, columns, size, activations=activations)


def _in_groups(weight: Tensor, size: int) -> Tensor:
    """[rows, groups, size], the last group filled up with zeros."""
    return functional.pad(weight, (0, -weight.shape[1] % size)).view(weight.shape[0], -1, size)


def _symmetric(groups: Tensor, codes: Codes) -> Tensor:
    scales = (groups.abs().amax(dim=-1) / _LARGEST[codes]).clamp_min(_TINIEST)
    return scales.log2().ceil().exp2() if codes == "fp4" else scales


def _asymmetric(groups: Tensor, codes: Codes) -> tuple[Tensor, Tensor]:
    """Scales, and the codes of 0."""
    low, high = groups.amin(dim=-1).clamp_max(0), groups.amax(dim=-1).clamp_min(0)
    scales = ((high - low) / _UNSIGNED[codes]).clamp_min(_TINIEST)
    return scales, (-low / scales).round()


def _nearest(values: Tensor, codes: Codes, zeros: Tensor | None) -> Tensor:
    if codes in _FLOATS:
        return values.clamp(-_LARGEST[codes], _LARGEST[codes]).to(_FLOATS[codes])
    if codes == "nf4":
        table = torch.tensor(NF4, device=values.device)
        return torch.bucketize(values, (table[1:] + table[:-1]) / 2).to(torch.uint8)
    if codes == "fp4":
        sizes = torch.tensor(FP4, device=values.device)
        nearest = torch.bucketize(values.abs(), (sizes[1:] + sizes[:-1]) / 2).to(torch.uint8)
        return torch.where(values < 0, nearest | 8, nearest)
    if zeros is not None:
        return values.round().clamp(0, _UNSIGNED[codes]).to(torch.uint8)
    if codes == "int4":
        return (values.round().clamp(-8, 7) + 8).to(torch.uint8)
    return values.round().clamp(-127, 127).to(torch.int8)
