"""The codebooks of the IQ types: which eight (or four) magnitudes a code stands for.

They are constants of the file format, found by search when the types were designed and computable from nothing;
`codebooks.npz` holds them as bytes, taken from the tables of the `gguf` package, and a test compares them with it.
IQ1_S and IQ1_M share one.
"""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

_FILE = Path(__file__).with_name("codebooks.npz")


@cache
def codebook(name: str, device: torch.device) -> Tensor:
    """float32 [codes, 8] for `IQ1`, `IQ2_XXS`, `IQ2_XS` and `IQ2_S`, [codes, 4] for `IQ3_XXS` and `IQ3_S`."""
    with np.load(_FILE, allow_pickle=False) as arrays:
        return torch.from_numpy(arrays[name]).to(device, torch.float32)


@cache
def even_signs(device: torch.device) -> Tensor:
    """uint8 [128]: seven stored sign bits and the eighth, which makes the number of minuses even."""
    return torch.tensor([code | code.bit_count() % 2 << 7 for code in range(128)], dtype=torch.uint8, device=device)
