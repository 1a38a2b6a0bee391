"""FP8 weights with a scale for the tensor, each row or each block: the older fp8 style and compressed-tensors."""

from collections.abc import Mapping

from torch import Tensor

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.quantization import WeightScheme


def read_fp8(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    values = tensors["weight"]
    scales = scales_by_row(tensors["weight_scale"].float(), scheme, len(values))
    columns = values.shape[1]
    return QuantizedMatrix(
        scheme.codes, values, scales, None, columns, scheme.group or columns, None, scheme.activations
    )


def scales_by_row(scales: Tensor, scheme: WeightScheme, rows: int) -> Tensor:
    """[blocks of rows, groups] to [rows, groups]."""
    repeated = rows if scheme.block_rows is None else scheme.block_rows
    return scales if repeated == 1 else scales.repeat_interleave(repeated, dim=0)[:rows].contiguous()
