"""Random rows of every packed ggml type, of magnitudes as weights have them: random bytes may be scales of any size."""

from functools import cache

import torch
from torch import Tensor

from quire.core.ggml_types import PACKED
from quire.ops.cpu.matrix import StoredRows
from quire.ops.reference.gguf.dequantize import dequantize

_SMALLEST, _LARGEST = 0.3, 8.0
"""Deviations of groups. Were they far apart, a few weights would decide a dot product, and its rounding say little."""
_TRIES = 8192


def columns_of(kind: str, blocks: int) -> int:
    return int(PACKED[kind].block) * blocks


def random_rows(kind: str, rows: int, blocks: int, seed: int = 0) -> StoredRows:
    """Rows of `blocks` random blocks each."""
    good = _blocks_like_weights(kind)
    generator = torch.Generator().manual_seed(seed)
    chosen = good[torch.randint(0, len(good), (rows * blocks,), generator=generator)]
    return StoredRows(kind, chosen.view(rows, -1), rows)


@cache
def _blocks_like_weights(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    tried = torch.randint(0, 256, (_TRIES, PACKED[kind].num_bytes), dtype=torch.uint8, generator=generator)
    if kind == "Q8_0":
        # llama.cpp never writes -128, and quire packs it as -127
        tried[:, 2:] = torch.where(tried[:, 2:] == 128, 129, tried[:, 2:])
    deviations = dequantize(tried, kind).view(_TRIES, -1, 32).square().mean(dim=2).sqrt()
    good = tried[((deviations > _SMALLEST) & (deviations < _LARGEST)).all(dim=1)]
    assert len(good) > 100, f"too few of the random {kind} blocks are like weights"
    return good


def float_rows(kind: str, rows: int, columns: int, seed: int = 0) -> StoredRows:
    """Normal numbers in the dtype called `kind`."""
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    return StoredRows(kind, values.to(getattr(torch, kind)), rows)


def values_of(stored: StoredRows) -> Tensor:
    """What the reference makes of them, [rows, columns]."""
    return dequantize(stored.data, stored.kind) if stored.kind in PACKED else stored.data.float()
