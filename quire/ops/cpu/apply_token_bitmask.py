"""apply_token_bitmask by numpy: eight tokens of a mask at a time are looked up as limits that logits may not exceed."""

import numpy as np
from torch import Tensor

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_LIMITS = np.where(_BITS, np.float32(np.nan), np.float32(-np.inf))
"""By byte of a mask: NaN where a token is allowed, as the lesser of anything and NaN is, for `fmin`, the former."""
_AT_ONCE = 1 << 16
"""Logits whose limits stay in a cache."""


def apply_token_bitmask(logits: Tensor, masks: Tensor, rows: Tensor) -> None:
    values, vocabulary = logits.numpy(), logits.shape[1]
    words = masks.numpy().take(rows.numpy(), axis=0)
    step = max(1, _AT_ONCE // vocabulary)
    # 0.04 ms for a row of 49,152; writing where bits are 0 takes 0.03 to 0.5, by how often they change
    for start in range(0, len(values), step):
        part = words[start : start + step]
        if (part == -1).all():
            continue
        limits = _LIMITS.take(part.view(np.uint8), axis=0).reshape(len(part), -1)
        bound = values[start : start + step]
        np.fmin(bound, limits[:, :vocabulary], out=bound)
