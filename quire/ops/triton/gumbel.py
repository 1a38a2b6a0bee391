"""Gumbel noise inside a kernel: the function of (seed, stream, position, id) that `reference/gumbel_noise.py` defines.

The random words are the same to the bit; the noise is, up to the last bits of two logarithms. It lies between -2.82 and
22.88: -log(-log(2**-24)) and -log(2**-33).
"""

import triton
import triton.language as tl

from quire.ops.reference.gumbel_noise import PURPOSE, ROUNDS

_ROUNDS = tl.constexpr(ROUNDS)
_PURPOSE = tl.constexpr(PURPOSE)
_MULTIPLIER_0 = tl.constexpr(0xD2511F53)
_MULTIPLIER_1 = tl.constexpr(0xCD9E8D57)
_WEYL_0 = tl.constexpr(0x9E3779B9)
_WEYL_1 = tl.constexpr(0xBB67AE85)
_WORD = tl.constexpr(2.0**-32)
_BELOW_ONE = tl.constexpr(1 - 2.0**-24)


@triton.jit
def random_words(first_id, seed, stream, position, block: tl.constexpr):
    """Uniform uint32 [block] for the ids from `first_id` on, a multiple of 4 as `block` is; the others are int64."""
    zero = tl.zeros([block // 4], dtype=tl.uint32)
    multiplier_0 = tl.full([block // 4], _MULTIPLIER_0, dtype=tl.uint32)
    multiplier_1 = tl.full([block // 4], _MULTIPLIER_1, dtype=tl.uint32)
    c0 = (first_id // 4 + tl.arange(0, block // 4)).to(tl.uint32)
    c1 = zero + position.to(tl.uint32)
    c2 = zero + stream.to(tl.uint32)
    c3 = tl.full([block // 4], _PURPOSE, dtype=tl.uint32)
    k0 = zero + seed.to(tl.uint32)
    k1 = zero + (seed >> 32).to(tl.uint32)
    for number in tl.static_range(_ROUNDS):
        if number > 0:
            k0 += tl.full([block // 4], _WEYL_0, dtype=tl.uint32)
            k1 += tl.full([block // 4], _WEYL_1, dtype=tl.uint32)
        high_0, low_0 = tl.umulhi(c0, multiplier_0), c0 * multiplier_0
        high_1, low_1 = tl.umulhi(c2, multiplier_1), c2 * multiplier_1
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
    # an id takes word id % 4 of its block of four
    return tl.interleave(tl.interleave(c0, c2), tl.interleave(c1, c3))


@triton.jit
def uniform_numbers(first_id, seed, stream, position, block: tl.constexpr):
    """float32 [block], between 0 and 1: the less, the more noise they are."""
    words = random_words(first_id, seed, stream, position, block)
    return tl.minimum((words.to(tl.float32) + 0.5) * _WORD, _BELOW_ONE)


@triton.jit
def gumbel_noise(uniform):
    """float32, never more than -log(uniform)."""
    # -log1p(-v) is -log(1 - v), corrected by what 1 - v lost when it was rounded; where that is all of v, it is v
    rest = 1.0 - uniform
    lost_all = rest == 1.0
    rate = tl.where(lost_all, uniform, -tl.log(rest) * (uniform / tl.where(lost_all, 1.0, 1.0 - rest)))
    return -tl.log(rate)
