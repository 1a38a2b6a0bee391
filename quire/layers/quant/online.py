"""Plain weights that are quantized as they are loaded, one matrix at a time."""

from collections.abc import Mapping

import torch
from torch import Tensor

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.round_to_nearest import round_to_nearest
from quire.spec.quantization import WeightScheme


def read_online(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    return round_to_nearest(
        tensors["weight"],
        scheme.codes,
        scheme.group,
        with_zeros=scheme.has_zeros,
        activations=scheme.activations,
        scale_dtype=torch.float16 if scheme.codes == "int4" else torch.float32,
    )
