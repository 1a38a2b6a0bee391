"""AWQ's gemm layout: 4 bits in words along a row of [columns, rows], eight in an order of their own."""

from collections.abc import Mapping

import torch
from torch import Tensor

from quire.layers.quant.codes import unless_halfway, unpack_words, whole_numbers
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.quantization import WeightScheme

_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where each of eight rows is in a word, which holds rows 0, 2, 4, 6, 1, 3, 5 and 7."""


def read_awq(scheme: WeightScheme, tensors: Mapping[str, Tensor], name: str) -> QuantizedMatrix:
    scales = tensors["scales"]
    rows = scales.shape[1]
    codes = _in_order(tensors["qweight"], rows)
    zeros = unless_halfway(_in_order(tensors["qzeros"], rows).t(), scheme)
    return whole_numbers(scheme, codes.t(), scales.t(), zeros)


def _in_order(words: Tensor, rows: int) -> Tensor:
    """uint8 [columns or groups, rows]."""
    codes = unpack_words(words, 4, 8 * words.shape[1]).view(len(words), -1, 8)
    places = torch.tensor(_PLACES, device=words.device)
    return codes.index_select(2, places).flatten(1)[:, :rows]
