"""Cards to choose for, none of which is needed here."""

from quire.ops.triton.card import Card

H200 = Card("NVIDIA H200", 132, 227 << 10, 32, 4.92e12)
OTHERS = [
    Card("NVIDIA L4", 58, 99 << 10, 32, 300e9),
    Card("NVIDIA A100-SXM4-80GB", 108, 163 << 10, 32, 2.04e12),
    Card("AMD Instinct MI300X", 304, 64 << 10, 64, 5.3e12),
]
