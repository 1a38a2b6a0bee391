"""The words of quantization: which codes stand for weights, and how activations are quantized to meet them."""

from typing import Literal

Codes = Literal["fp8_e4m3", "fp8_e5m2", "int8", "int4", "nf4"]
"""What one stored number means: a small float, a whole number, or a place in NF4's table of 16 values."""

Activations = Literal["as they are", "a scale each token", "a scale each group", "one scale"]
"""How x is quantized before it is multiplied: not, by its own largest value, or by the checkpoint's scale."""

CODE_BITS: dict[Codes, int] = {"fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "int4": 4, "nf4": 4}
