"""How skinny GEMMs are cut for the shapes of known models, by card: data alone, no code.

Written by `quire bench kernels linear --tune --table quire/ops/triton/skinny_gemm_table.py`.
Measured on: NVIDIA H200, torch 2.11.0+cu130, triton 3.6.0.
"""

from typing import Literal

Entry = tuple[Literal["cuda", "tensor"], int, int, int, int, int]
"""The fields of `skinny_gemm_choices.Choice`: cores, block_out, block_in, splits, num_warps, num_stages."""

Table = dict[tuple[int, int], dict[int, Entry | None]]
"""By (out, in), then by the most rows an entry is for; None where cuBLAS is faster."""

TABLES: dict[str, Table] = {
    "NVIDIA H200": {
        (6144, 4096): {
            1: ("cuda", 4, 1024, 1, 4, 1),
            2: ("cuda", 2, 512, 1, 1, 1),
            4: ("cuda", 4, 512, 1, 2, 1),
            8: ("tensor", 64, 128, 1, 4, 6),
            16: ("tensor", 64, 128, 1, 4, 6),
            32: None,
            64: None,
            128: None,
        },
        (4096, 4096): {
            1: ("cuda", 2, 2048, 1, 8, 1),
            2: ("cuda", 2, 1024, 1, 4, 1),
            4: ("cuda", 4, 512, 1, 1, 3),
            8: ("tensor", 64, 128, 4, 4, 4),
            16: ("tensor", 64, 128, 2, 4, 6),
            32: ("tensor", 64, 128, 2, 4, 4),
            64: None,
            128: None,
        },
        (28672, 4096): {
            1: ("cuda", 2, 2048, 1, 8, 1),
            2: ("cuda", 2, 512, 1, 1, 1),
            4: ("tensor", 64, 128, 1, 4, 4),
            8: ("tensor", 64, 128, 1, 4, 4),
            16: None,
            32: None,
            64: ("tensor", 128, 64, 1, 4, 5),
            128: None,
        },
        (4096, 14336): {
            1: ("cuda", 4, 2048, 1, 8, 1),
            2: ("cuda", 4, 1024, 1, 4, 1),
            4: ("cuda", 8, 512, 1, 2, 3),
            8: ("tensor", 64, 128, 2, 4, 6),
            16: ("tensor", 64, 256, 2, 4, 4),
            32: ("tensor", 64, 128, 4, 4, 3),
            64: ("tensor", 64, 128, 4, 4, 3),
            128: None,
        },
        (128256, 4096): {
            1: ("cuda", 2, 2048, 1, 8, 1),
            2: ("cuda", 4, 2048, 1, 8, 1),
            4: ("tensor", 64, 128, 1, 4, 4),
            8: ("tensor", 128, 128, 1, 4, 4),
            16: ("tensor", 128, 128, 1, 4, 4),
            32: ("tensor", 64, 128, 1, 4, 3),
            64: ("tensor", 128, 64, 1, 8, 4),
            128: None,
        },
        (4096, 1024): {
            1: ("cuda", 2, 512, 1, 1, 1),
            2: ("cuda", 2, 512, 1, 1, 1),
            4: ("cuda", 2, 512, 1, 1, 1),
            8: ("tensor", 64, 128, 2, 4, 6),
            16: ("tensor", 64, 128, 2, 4, 4),
            32: ("tensor", 64, 64, 2, 4, 6),
            64: None,
            128: None,
        },
        (1024, 2048): {
            1: ("cuda", 2, 2048, 1, 8, 1),
            2: ("cuda", 1, 1024, 1, 4, 1),
            4: ("cuda", 2, 1024, 1, 4, 1),
            8: ("tensor", 64, 128, 8, 4, 6),
            16: ("tensor", 64, 128, 8, 4, 6),
            32: ("tensor", 64, 256, 4, 4, 3),
            64: ("tensor", 64, 128, 8, 4, 4),
            128: ("tensor", 64, 64, 8, 4, 5),
        },
        (6144, 1024): {
            1: ("cuda", 2, 1024, 1, 4, 1),
            2: ("cuda", 2, 512, 1, 1, 1),
            4: None,
            8: ("tensor", 64, 128, 1, 4, 4),
            16: ("tensor", 64, 128, 1, 4, 6),
            32: ("tensor", 64, 128, 1, 4, 4),
            64: ("tensor", 64, 64, 1, 4, 6),
            128: None,
        },
        (1024, 3072): {
            1: ("cuda", 2, 1024, 1, 4, 1),
            2: ("cuda", 1, 1024, 1, 4, 1),
            4: ("cuda", 2, 1024, 1, 4, 1),
            8: ("tensor", 64, 128, 8, 4, 6),
            16: ("tensor", 64, 128, 8, 4, 6),
            32: ("tensor", 64, 256, 6, 4, 3),
            64: ("tensor", 64, 128, 8, 4, 4),
            128: ("tensor", 64, 64, 8, 4, 5),
        },
        (151936, 1024): {
            1: ("cuda", 2, 512, 1, 2, 1),
            2: ("cuda", 2, 512, 1, 1, 1),
            4: ("tensor", 64, 128, 1, 4, 4),
            8: ("tensor", 64, 128, 1, 4, 4),
            16: ("tensor", 64, 128, 1, 4, 4),
            32: ("tensor", 64, 128, 1, 4, 3),
            64: ("tensor", 64, 64, 1, 4, 6),
            128: None,
        },
    },
}
"""By the name that a card's driver gives it."""
