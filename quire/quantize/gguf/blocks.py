"""Rows of weights as blocks of the ggml types that quire writes. Layouts are those of `ops/reference/gguf/`."""

from collections.abc import Callable

import torch
from torch import Tensor

from quire.core.ggml_types import PACKED
from quire.quantize.gguf.fit import symmetric, with_minimum
from quire.quantize.gguf.pack import as_half, divided, half, pack_fields

_AT_ONCE = 2**21
"""Elements: intermediate values are several times as large as the weights."""


def encode(weight: Tensor, kind: str) -> Tensor:
    """float32 [rows, columns] to uint8 [rows, bytes of a row]."""
    rows, columns = weight.shape
    block = PACKED[kind].block
    step = max(1, _AT_ONCE // columns)
    pieces = [
        _BLOCKS[kind](weight[start : start + step].float().reshape(-1, block)).view(-1, _row_bytes(kind, columns))
        for start in range(0, rows, step)
    ]
    return torch.cat(pieces)


def _row_bytes(kind: str, columns: int) -> int:
    return PACKED[kind].bytes_of(columns)


def _q8_0(blocks: Tensor) -> Tensor:
    scale = as_half(blocks.abs().amax(dim=1) / 127)
    return torch.cat((half(scale), _codes(blocks, scale, -127, 127).to(torch.int8).view(torch.uint8)), dim=1)


def _q4_0(blocks: Tensor) -> Tensor:
    scale = as_half(symmetric(blocks, -8, 7))
    return torch.cat((half(scale), pack_fields(_codes(blocks, scale, -8, 7) + 8, 4, 16)), dim=1)


def _q5_0(blocks: Tensor) -> Tensor:
    scale = as_half(symmetric(blocks, -16, 15))
    return torch.cat((half(scale), _five_bits(_codes(blocks, scale, -16, 15) + 16)), dim=1)


def _q5_1(blocks: Tensor) -> Tensor:
    scale, minimum = (as_half(each) for each in with_minimum(blocks, 31, free=True))
    codes = _codes(blocks + minimum.unsqueeze(1), scale, 0, 31)
    return torch.cat((half(scale), half(-minimum), _five_bits(codes)), dim=1)


def _q4_k(blocks: Tensor) -> Tensor:
    head, codes = _scaled_groups(blocks, 15)
    return torch.cat((head, pack_fields(codes, 4, 32)), dim=1)


def _q5_k(blocks: Tensor) -> Tensor:
    head, codes = _scaled_groups(blocks, 31)
    return torch.cat((head, pack_fields(codes >> 4, 1, 32), pack_fields(codes & 15, 4, 32)), dim=1)


def _q6_k(blocks: Tensor) -> Tensor:
    groups = blocks.view(-1, 16)
    wanted = symmetric(groups, -32, 31).view(-1, 16)
    scale = as_half(wanted.abs().amax(dim=1) / 127)
    small = divided(wanted, scale.unsqueeze(1).expand_as(wanted)).round().clamp(-128, 127)
    codes = (_codes(groups, (scale.unsqueeze(1) * small).view(-1), -32, 31) + 32).view(-1, 256).to(torch.uint8)
    packed = (pack_fields(codes & 15, 4, 64), pack_fields(codes >> 4, 2, 32))
    return torch.cat((*packed, small.to(torch.int8).view(torch.uint8), half(scale)), dim=1)


def _scaled_groups(blocks: Tensor, highest: int) -> tuple[Tensor, Tensor]:
    """Blocks of eight groups: sixteen bytes with scales and minima of six bits each, and codes [blocks, 256]."""
    groups = blocks.view(-1, 32)
    wanted, wanted_minima = (each.view(-1, 8) for each in with_minimum(groups, highest))
    wanted = wanted.clamp_min(0)
    scale, minimum = (as_half(each.amax(dim=1) / 63) for each in (wanted, wanted_minima))
    scales = divided(wanted, scale.unsqueeze(1).expand_as(wanted)).round().clamp(0, 63)
    minima = divided(wanted_minima, minimum.unsqueeze(1).expand_as(wanted)).round().clamp(0, 63)
    lifted = groups + (minimum.unsqueeze(1) * minima).view(-1, 1)
    codes = _codes(lifted, (scale.unsqueeze(1) * scales).view(-1), 0, highest).view(-1, 256)
    small, low = scales.to(torch.uint8), minima.to(torch.uint8)
    six_bits = (
        small[:, :4] | (small[:, 4:] >> 4) << 6,
        low[:, :4] | (low[:, 4:] >> 4) << 6,
        small[:, 4:] & 15 | (low[:, 4:] & 15) << 4,
    )
    return torch.cat((half(scale), half(minimum), *six_bits), dim=1), codes.to(torch.uint8)


def _codes(groups: Tensor, scale: Tensor, lowest: int, highest: int) -> Tensor:
    """The nearest codes of groups [groups, elements], as floats."""
    return divided(groups, scale.unsqueeze(1).expand_as(groups)).round().clamp(lowest, highest)


def _five_bits(codes: Tensor) -> Tensor:
    """Fifth bits, then the lower four."""
    whole = codes.to(torch.uint8)
    return torch.cat((pack_fields(whole >> 4, 1, 1), pack_fields(whole & 15, 4, 16)), dim=1)


_BLOCKS: dict[str, Callable[[Tensor], Tensor]] = {
    "Q4_0": _q4_0,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
"""Each takes float32 [blocks, elements of a block] and returns uint8 [blocks, bytes of a block]."""
