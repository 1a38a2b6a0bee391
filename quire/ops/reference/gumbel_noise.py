"""Gumbel noise as a pure function of (seed, stream, position, vocabulary id): no state, no generator, no batch.

Philox4x32-7 (Salmon et al., SC 2011; 7 rounds are the fewest that pass BigCrush) turns the key (low and high word of
the seed) and the counter (id // 4, position, stream, PURPOSE) into four 32-bit words; id takes word id % 4, x. Then

    v = min((float32(x) + 0.5) * 2**-32, 1 - 2**-24)        noise = -log(-log1p(-v))
"""

import torch
from torch import Tensor

ROUNDS = 7
PURPOSE = 0  # the fourth counter word; other draws of a sequence take other numbers
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def gumbel_noise(seed: Tensor, stream: Tensor, position: Tensor, vocab_size: int) -> Tensor:
    """Noise [n, vocab_size], float32, for n rows of int64 `seed`, `stream` and `position`."""
    return gumbel_of(random_words(seed, stream, position, vocab_size))


def random_words(seed: Tensor, stream: Tensor, position: Tensor, vocab_size: int) -> Tensor:
    """Uniform 32-bit words [n, vocab_size], as int64."""
    blocks = torch.arange(-(-vocab_size // 4), device=seed.device).expand(len(seed), -1)
    column = seed[:, None]
    counter = (blocks, position[:, None] & _WORD, stream[:, None] & _WORD, torch.full_like(column, PURPOSE))
    words = philox(counter, (column & _WORD, (column >> 32) & _WORD))
    return torch.stack(words, dim=-1).reshape(len(seed), -1)[:, :vocab_size]


def gumbel_of(words: Tensor) -> Tensor:
    # The usual mistake of Gumbel-max is a coarse upper tail: it decides whether rare tokens are ever drawn. Small v
    # is that tail, and float32 is finest there; the other end, where v rounds to 1, is cut off and decides nothing.
    uniform = ((words.float() + 0.5) * 2.0**-32).clamp_(max=1 - 2.0**-24)
    return -torch.log(-torch.log1p(-uniform))


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor], rounds: int = ROUNDS
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32 over words below 2**32 held in int64, whose products wrap as unsigned 64-bit ones do."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for number in range(rounds):
        if number:
            k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((second >> 32) & _WORD) ^ c1 ^ k0,
            second & _WORD,
            ((first >> 32) & _WORD) ^ c3 ^ k1,
            first & _WORD,
        )
    return c0, c1, c2, c3
