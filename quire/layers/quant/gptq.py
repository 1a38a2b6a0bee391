"""GPTQ: 4 or 8 bits in words along a column, zero points in words along a row, columns perhaps in act-order."""

from collections.abc import Mapping

from torch import Tensor

from quire.layers.quant.codes import sorted_by_group, unless_halfway, unpack_words, whole_numbers
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.quantization import WeightScheme


def read_gptq(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    words, scales = tensors["qweight"], tensors["scales"]
    rows = scales.shape[1]
    groups_of = tensors.get("g_idx")
    columns = words.shape[0] * 32 // scheme.bits if groups_of is None else len(groups_of)
    codes = unpack_words(words.t(), scheme.bits, columns)
    zeros = unpack_words(tensors["qzeros"], scheme.bits, rows)
    if scheme.zeros_less_one:
        zeros = zeros.int() + 1
    order = None if groups_of is None else sorted_by_group(groups_of, scheme.group, name)
    by_row = unless_halfway(zeros.t(), scheme)
    return whole_numbers(scheme, codes if order is None else codes[:, order], scales.t(), by_row, order)
