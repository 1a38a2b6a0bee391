"""quantized_linear: the definition."""

import torch
from torch import Tensor
from torch.nn import functional

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_matrix

_LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0, "int4": 127.0}
"""Of the codes that activations are quantized to: the floats of the weights, or int8 beside whole numbers."""
_FLOATS = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
_TINIEST = 1e-12
"""The least scale, so that zeros stay zeros."""


def quantized_linear(x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None) -> Tensor:
    """`x matrixᵀ + bias`, x quantized first as the matrix says; summed in float32 and rounded once."""
    product = functional.linear(quantized_activations(x, matrix), dequantize_matrix(matrix))
    return (product if bias is None else product + bias.float()).to(x.dtype)


def quantized_activations(x: Tensor, matrix: QuantizedMatrix) -> Tensor:
    """What is left of x [..., columns] once it is quantized, in float32."""
    values = x.float()
    match matrix.activations:
        case "as they are":
            return values
        case "one scale":
            assert matrix.input_scale is not None, "a static scale is part of the matrix"
            return _rounded(values, matrix.input_scale.float().expand(1), matrix)
        case "a scale each token":
            return _rounded(values, _scale(values, matrix), matrix)
        case "a scale each group":
            return _rounded_by_group(values, matrix)


def _rounded_by_group(values: Tensor, matrix: QuantizedMatrix) -> Tensor:
    padded = functional.pad(values, (0, -matrix.columns % matrix.group))
    groups = padded.reshape(*values.shape[:-1], -1, matrix.group)
    return _rounded(groups, _scale(groups, matrix), matrix).flatten(-2)[..., : matrix.columns]


def _scale(values: Tensor, matrix: QuantizedMatrix) -> Tensor:
    return (values.abs().amax(dim=-1, keepdim=True) / _LARGEST[matrix.codes]).clamp_min(_TINIEST)


def _rounded(values: Tensor, scale: Tensor, matrix: QuantizedMatrix) -> Tensor:
    largest = _LARGEST[matrix.codes]
    codes = (values / scale).clamp(-largest, largest)
    float_type = _FLOATS.get(matrix.codes)
    return (codes.round() if float_type is None else codes.to(float_type).float()) * scale
