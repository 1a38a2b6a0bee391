"""The words of quantization: which codes stand for weights, and how activations are quantized to meet them."""

from typing import Literal

Codes = Literal["fp8_e4m3", "fp8_e5m2", "int8", "int6", "int5", "int4", "int3", "int2", "nf4", "iq4", "fp4"]
"""What one stored number means: a small float, a whole number, or a place in a table of 16 values: NF4's, IQ4's, or the
floats of four bits (E2M1) that MXFP4 has.
"""

Activations = Literal["as they are", "a scale each token", "a scale each group", "one scale"]
"""How x is quantized before it is multiplied: not, by its own largest value, or by the checkpoint's scale."""

PLANES: dict[Codes, tuple[int, int]] = {
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2", "int8"), (8, 0)),
    "int6": (4, 2),
    "int5": (4, 1),
    **dict.fromkeys(("int4", "nf4", "iq4", "fp4"), (4, 0)),
    "int3": (2, 1),
    "int2": (2, 0),
}
"""Bits of a code that lie in a matrix's `values`, and those above them, which lie in `high`."""

EXPERT_CODES: frozenset[Codes] = frozenset({"fp4"})
"""Codes that kernels of GPUs multiply experts by as they are; experts in others are expanded when they are loaded."""
