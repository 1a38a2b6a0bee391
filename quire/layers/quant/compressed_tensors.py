"""compressed-tensors' pack-quantized: 4 or 8 bits in words along a row, zero points in words along a column."""

from collections.abc import Mapping

from torch import Tensor

from quire.core.errors import CheckpointError
from quire.layers.quant.codes import sorted_by_group, unpack_words, whole_numbers
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.quantization import WeightScheme


def read_packed(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    scales = tensors["weight_scale"]
    rows = len(scales)
    columns = _columns(tensors, rows, scheme, name)
    codes = unpack_words(tensors["weight_packed"], scheme.bits, columns)
    zeros = tensors.get("weight_zero_point")
    if zeros is not None:
        zeros = unpack_words(zeros.t(), scheme.bits, rows).t()
    groups_of = tensors.get("weight_g_idx")
    order = None
    if groups_of is not None and bool((groups_of >= 0).all()):  # -1 stands for no order at all
        order = sorted_by_group(groups_of, scheme.group, name)
    return whole_numbers(scheme, codes if order is None else codes[:, order], scales, zeros, order)


def _columns(tensors: Mapping[str, Tensor], rows: int, scheme: WeightScheme, name: str) -> int:
    """Without the padding of the last word."""
    shape = tensors.get("weight_shape")
    words = tensors["weight_packed"].shape[1]
    most = words * 32 // scheme.bits
    if shape is None:
        return most
    given_rows, columns = (int(size) for size in shape)
    if given_rows != rows or -(-columns * scheme.bits // 32) != words:
        raise CheckpointError(
            f"{name}: weight_shape says [{given_rows}, {columns}], but the packed weight is [{rows}, {most}]; the file "
            "is damaged."
        )
    return columns
