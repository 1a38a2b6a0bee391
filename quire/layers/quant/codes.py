"""What readers of quantized checkpoints share: codes out of 32-bit words, and matrices of whole numbers."""

import torch
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.core.quantized import chunk_columns
from quire.ops.bit_planes import pack_bits
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.quantization import WeightScheme


def unpack_words(words: Tensor, bits: int, count: int) -> Tensor:
    """int32 [rows, words], the lowest bits first, to uint8 [rows, count]."""
    held = words.contiguous().view(torch.uint8)
    codes = held if bits == 8 else torch.stack((held & 15, held >> 4), dim=-1).flatten(1)
    return codes[:, :count]


def whole_numbers(
    scheme: WeightScheme, codes: Tensor, scales: Tensor, zeros: Tensor | None, order: Tensor | None = None
) -> QuantizedMatrix:
    """Of unsigned codes uint8 [rows, columns], which zero points of None put halfway.

    4-bit codes of an odd number of columns, of which no two make a byte, are held in 8 bits.
    """
    columns = codes.shape[1]
    group = scheme.group or columns
    held = scales if scheme.bits == 4 else scales.float()
    given = None if zeros is None else zeros.to(torch.uint8).contiguous()
    common = (held.contiguous(), given, columns, group, order, scheme.activations)
    if scheme.bits == 4 and group % 2 == 0 and columns % 2 == 0:
        return QuantizedMatrix("int4", pack_bits(codes, 4, chunk_columns(group, columns)), *common)
    if given is None:
        codes = (codes.to(torch.int16) - (1 << (scheme.bits - 1))).to(torch.int8)
    return QuantizedMatrix("int8", codes.contiguous(), *common)


def unless_halfway(zeros: Tensor, scheme: WeightScheme) -> Tensor | None:
    """Zero points, or None where codes are signed: symmetric checkpoints may store them all the same."""
    if not scheme.has_zeros and bool((zeros == 1 << (scheme.bits - 1)).all()):
        return None
    return zeros


def sorted_by_group(groups_of: Tensor, group: int | None, name: str) -> Tensor | None:
    """The order that puts columns with the same scale side by side; None where they are so already.

    `groups_of` [columns] says which group each column is in.
    """
    columns = len(groups_of)
    size = group or columns
    found = groups_of.long()
    expected = torch.arange(columns, device=found.device) // size
    if torch.equal(found, expected):
        return None
    order = torch.argsort(found, stable=True)
    if not torch.equal(found[order], expected):
        raise CheckpointError(
            f"{name}: g_idx does not put {size} columns into each of {-(-columns // size)} groups; the file is damaged."
        )
    return order
