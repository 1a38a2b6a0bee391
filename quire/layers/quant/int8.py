"""INT8 weights, one a byte: compressed-tensors' W8A8, and bitsandbytes' LLM.int8()."""

from collections.abc import Mapping

import torch
from torch import Tensor

from quire.layers.quant.fp8 import scales_by_row
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.quantization import WeightScheme

_LARGEST = 127


def read_int8(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    values, zeros = tensors["weight"], tensors.get("weight_zero_point")
    rows, columns = values.shape
    scales = scales_by_row(tensors["weight_scale"].float(), scheme, rows)
    if zeros is not None and bool(zeros.any()):
        # both become unsigned, which leaves their difference as it is
        values, zeros = _unsigned(values), _unsigned(scales_by_row(zeros, scheme, rows))
    else:
        zeros = None
    return QuantizedMatrix("int8", values, scales, zeros, columns, scheme.group or columns, None, scheme.activations)


def read_llm_int8(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    """Its scales are the largest weights of rows."""
    values = tensors["weight"]
    scales = (tensors["SCB"] / _LARGEST).unsqueeze(1)
    return QuantizedMatrix("int8", values, scales, None, values.shape[1], values.shape[1])


def _unsigned(codes: Tensor) -> Tensor:
    return (codes.to(torch.int16) + 128).to(torch.uint8)
