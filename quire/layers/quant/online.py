"""Plain weights that are quantized as they are loaded, one matrix at a time."""

from collections.abc import Mapping

import torch
from torch import Tensor

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.round_to_nearest import round_to_nearest
from quire.spec.quantization import WeightScheme

_SCALES = {"int4": torch.float16, "fp4": torch.bfloat16}


def read_online(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    return round_to_nearest(
        tensors["weight"],
        scheme.codes,
        scheme.group,
        with_zeros=scheme.has_zeros,
        activations=scheme.activations,
        scale_dtype=_SCALES.get(scheme.codes, torch.float32),
    )
