"""How products of few rows are cut for the shapes of known models: data alone, no code.

Written by `quire bench kernels linear --tune --table quire/ops/triton/few_rows_table.py`.
Measured on: NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0.
"""

from typing import Literal

Entry = tuple[Literal["cuda", "tensor"], int, int, int, int, int]
"""The fields of `few_rows_choices.Choice`: cores, block_out, block_in, splits, num_warps, num_stages."""

TABLE: dict[tuple[int, int], dict[int, Entry | None]] = {
    (6144, 4096): {
        1: ("cuda", 4, 1024, 1, 4, 1),
        2: ("cuda", 2, 512, 1, 1, 1),
        4: ("cuda", 4, 512, 1, 2, 1),
        8: ("tensor", 32, 256, 1, 2, 4),
        16: ("tensor", 32, 256, 1, 2, 4),
    },
    (4096, 4096): {
        1: ("cuda", 2, 2048, 1, 8, 1),
        2: ("cuda", 2, 1024, 1, 4, 1),
        4: ("cuda", 4, 512, 1, 1, 3),
        8: ("tensor", 64, 128, 3, 4, 4),
        16: ("tensor", 64, 128, 3, 4, 4),
    },
    (28672, 4096): {
        1: ("cuda", 2, 2048, 1, 8, 1),
        2: ("cuda", 2, 512, 1, 1, 1),
        4: ("tensor", 64, 128, 1, 4, 4),
        8: None,
        16: None,
    },
    (4096, 14336): {
        1: ("cuda", 4, 2048, 1, 8, 1),
        2: ("cuda", 4, 1024, 1, 4, 1),
        4: ("cuda", 8, 512, 1, 2, 3),
        8: ("tensor", 64, 128, 3, 4, 4),
        16: ("tensor", 64, 128, 3, 4, 4),
    },
    (128256, 4096): {
        1: ("cuda", 2, 2048, 1, 8, 1),
        2: ("cuda", 4, 2048, 1, 8, 1),
        4: ("tensor", 64, 128, 1, 4, 4),
        8: ("tensor", 128, 128, 1, 4, 4),
        16: ("tensor", 128, 128, 1, 4, 4),
    },
    (4096, 1024): {
        1: ("cuda", 2, 512, 1, 1, 1),
        2: ("cuda", 2, 512, 1, 1, 1),
        4: ("cuda", 2, 512, 1, 1, 1),
        8: None,
        16: None,
    },
    (1024, 2048): {
        1: ("cuda", 2, 2048, 1, 8, 1),
        2: ("cuda", 1, 1024, 1, 4, 1),
        4: ("cuda", 2, 1024, 1, 4, 1),
        8: ("tensor", 64, 128, 8, 4, 4),
        16: ("tensor", 64, 128, 8, 4, 4),
    },
    (6144, 1024): {
        1: ("cuda", 2, 1024, 1, 4, 1),
        2: ("cuda", 2, 512, 1, 1, 1),
        4: None,
        8: None,
        16: None,
    },
    (1024, 3072): {
        1: ("cuda", 2, 1024, 1, 4, 1),
        2: ("cuda", 1, 1024, 1, 4, 1),
        4: ("cuda", 2, 1024, 1, 4, 1),
        8: ("tensor", 64, 128, 9, 4, 4),
        16: ("tensor", 64, 128, 9, 4, 4),
    },
    (151936, 1024): {
        1: ("cuda", 2, 512, 1, 2, 1),
        2: ("cuda", 2, 512, 1, 1, 1),
        4: ("tensor", 64, 128, 1, 4, 4),
        8: ("tensor", 64, 128, 1, 4, 4),
        16: ("tensor", 64, 128, 1, 4, 4),
    },
}
"""By (out, in), then by the most rows an entry is for; None where cuBLAS is faster."""
