"""Quantized matrices of no meaning, as checkpoints of the common formats would be held: random codes, made in place."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from quire.core.quantized import PLANES, Codes
from quire.ops.quantized_matrix import QuantizedMatrix

_DEVIATION = 0.02
"""Of the weights that they stand for: activations stay of order 1 through any number of layers."""


def random_matrix(form: str, rows: int, columns: int, device: torch.device) -> QuantizedMatrix:
    """`form` is one of `FORMS`."""
    return FORMS[form](rows, columns, device)


def copies_of(matrix: QuantizedMatrix, at_least: int) -> list[QuantizedMatrix]:
    """The matrix and as many copies of its codes as it takes to have so many bytes."""
    more = -(-at_least // matrix.values.nbytes) - 1
    high = matrix.high
    return [
        matrix,
        *(
            replace(matrix, values=matrix.values.clone(), high=None if high is None else high.clone())
            for _ in range(more)
        ),
    ]


def _fp8(rows: int, columns: int, device: torch.device) -> QuantizedMatrix:
    return replace(_made("fp8_e4m3", rows, columns, columns, device), activations="a scale each token")


def _fp8_blocks(rows: int, columns: int, device: torch.device) -> QuantizedMatrix:
    return replace(_made("fp8_e4m3", rows, columns, 128, device), activations="a scale each group")


def _int8(rows: int, columns: int, device: torch.device) -> QuantizedMatrix:
    return replace(_made("int8", rows, columns, columns, device), activations="a scale each token")


def _int4(rows: int, columns: int, device: torch.device) -> QuantizedMatrix:
    return _made("int4", rows, columns, 128, device, torch.bfloat16)


def _q8_0(rows: int, columns: int, device: torch.device) -> QuantizedMatrix:
    return _made("int8", rows, columns, 32, device, torch.float16)


def _q4_k(rows: int, columns: int, device: torch.device) -> QuantizedMatrix:
    matrix = _with_supers(_made("int4", rows, columns, 32, device))
    assert matrix.super_scales is not None
    # the middle of the codes is about zero
    return replace(matrix, mins=matrix.scales.clone(), super_mins=matrix.super_scales * 7.5)


def _q6_k(rows: int, columns: int, device: torch.device) -> QuantizedMatrix:
    return _with_supers(_made("int6", rows, columns, 16, device))


FORMS: dict[str, Callable[[int, int, torch.device], QuantizedMatrix]] = {
    "fp8": _fp8,
    "fp8_blocks": _fp8_blocks,
    "int8": _int8,
    "int4": _int4,
    "q4_k": _q4_k,
    "q6_k": _q6_k,
    "q8_0": _q8_0,
}
"""float8 and int8 with a scale each row and token, or each 128 columns; 4 bits in groups of 128, as GPTQ and AWQ have
them; ggml's types."""


def _made(
    codes: Codes, rows: int, columns: int, group: int, device: torch.device, scale_type: torch.dtype = torch.float32
) -> QuantizedMatrix:
    low_bits, high_bits = PLANES[codes]
    if codes == "fp8_e4m3":
        values, spread = torch.randn((rows, columns), device=device).to(torch.float8_e4m3fn), 1.0
    else:
        values, spread = _bytes(rows, columns * low_bits // 8, device), 2 ** (low_bits + high_bits) / 12**0.5
        values = values.view(torch.int8) if low_bits == 8 else values
    scales = torch.full((rows, columns // group), _DEVIATION / spread, dtype=scale_type, device=device)
    high = _bytes(rows, columns * high_bits // 8, device) if high_bits else None
    return QuantizedMatrix(codes, values, scales, None, columns, group, high=high)


def _with_supers(matrix: QuantizedMatrix) -> QuantizedMatrix:
    """Scales as small whole numbers, under one for 256 columns."""
    supers = matrix.scales[:, :: 256 // matrix.group].to(torch.float16) / 32
    return replace(matrix, scales=torch.full_like(matrix.scales, 32, dtype=torch.int8), super_scales=supers)


def _bytes(rows: int, columns: int, device: torch.device) -> Tensor:
    return torch.randint(0, 256, (rows, columns), dtype=torch.uint8, device=device)
