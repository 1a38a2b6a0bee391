"""How quantized skinny GEMMs are cut for the shapes of known models, by card and form: data alone, no code.

Written by `quire bench kernels quantized_linear --tune --table quire/ops/triton/quantized_skinny_table.py`.
"""

from quire.ops.triton.skinny_gemm_table import Table

TABLES: dict[str, dict[str, Table]] = {}
"""By the name that a card's driver gives it, then by form; None where the way of many rows is faster."""
