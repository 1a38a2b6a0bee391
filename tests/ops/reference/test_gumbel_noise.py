"""Philox against its authors' known answers; the noise against the distribution it must have."""

import math

import pytest
import torch

from quire.ops.reference.gumbel_noise import gumbel_noise, gumbel_of, philox, random_words
from tests.sampling import oracle
from tests.sampling.chi_square import p_value

PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)
WORD = 0xFFFFFFFF


def words_of(count: int, vocab_size: int, **fixed: int) -> torch.Tensor:
    """Words of `count` rows that differ in whatever is not fixed."""
    names = ("seed", "stream", "position")
    values = [torch.full((count,), fixed[name]) if name in fixed else torch.arange(count) for name in names]
    return random_words(*values, vocab_size)


@pytest.mark.parametrize(
    ("rounds", "inputs", "answer"),
    [  # from kat_vectors of the Random123 distribution
        (7, (0,) * 6, (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)),
        (7, (WORD,) * 6, (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662)),
        (7, PI, (0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A)),
        (10, (0,) * 6, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ],
)
def test_known_answers(rounds: int, inputs: tuple[int, ...], answer: tuple[int, ...]) -> None:
    tensors = [torch.tensor([word]) for word in inputs]
    found = philox((tensors[0], tensors[1], tensors[2], tensors[3]), (tensors[4], tensors[5]), rounds)
    assert tuple(int(word) for word in found) == answer
    assert oracle.philox(inputs[:4], inputs[4:], rounds) == answer


@pytest.mark.parametrize("seed", [0, -1, 1 << 40, -(1 << 63), (1 << 63) - 1])
def test_noise_is_the_formula(seed: int) -> None:
    noise = gumbel_noise(torch.tensor([seed]), torch.tensor([3]), torch.tensor([12345]), 11)
    expected = [oracle.gumbel(seed, 3, 12345, token) for token in range(11)]
    assert noise[0].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_noise_of_a_token_does_not_depend_on_rows_or_vocabulary() -> None:
    seed, stream, position = torch.arange(9) * 7919, torch.arange(9) % 2, torch.arange(9) + 100
    whole = gumbel_noise(seed, stream, position, 50257)
    for row in (0, 4, 8):
        one = slice(row, row + 1)
        assert torch.equal(gumbel_noise(seed[one], stream[one], position[one], 50257)[0], whole[row])
        assert torch.equal(gumbel_noise(seed[one], stream[one], position[one], 333)[0], whole[row, :333])


def test_noise_is_finite_at_both_ends() -> None:
    ends = gumbel_of(torch.tensor([0, WORD]))
    assert ends.tolist() == pytest.approx([33 * math.log(2), -math.log(24 * math.log(2))], rel=1e-5)


def test_noise_has_the_moments_of_a_gumbel() -> None:
    noise = gumbel_noise(*(torch.arange(200) * step for step in (1, 3, 5)), 5003).double()
    assert float(noise.mean()) == pytest.approx(0.5772157, abs=0.005)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.01)


@pytest.mark.parametrize("varied", ["seed", "stream", "position", "token"])
def test_words_are_uniform_along_every_input(varied: str) -> None:
    fixed = {name: 42 for name in ("seed", "stream", "position") if name != varied}
    words = words_of(1, 100_000, **fixed) if varied == "token" else words_of(100_000, 1, **fixed)
    for shift in (24, 12, 0):  # high, middle and low bits
        counts = torch.bincount((words.flatten() >> shift) & 0xFF, minlength=256).tolist()
        assert p_value(counts, [1 / 256] * 256) > 1e-4


@pytest.mark.parametrize("varied", ["seed", "stream", "position", "token"])
def test_neighbours_are_independent(varied: str) -> None:
    """4 bits of one word against 4 bits of the next: 256 equally likely pairs."""
    fixed = {name: 7 for name in ("seed", "stream", "position") if name != varied}
    words = (words_of(1, 100_000, **fixed) if varied == "token" else words_of(100_000, 1, **fixed)).flatten()
    for shift in (28, 0):
        nibbles = (words >> shift) & 0xF
        counts = torch.bincount(nibbles[:-1] * 16 + nibbles[1:], minlength=256).tolist()
        assert p_value(counts, [1 / 256] * 256) > 1e-4


def test_one_bit_of_any_input_flips_half_the_output() -> None:
    base = [torch.tensor([0x0123456789ABCDEF]), torch.tensor([5]), torch.tensor([777])]
    words = random_words(base[0], base[1], base[2], 4000)
    for place, bits in ((0, (0, 31, 32, 63)), (1, (0, 7)), (2, (0, 20))):
        for bit in bits:
            other = list(base)
            other[place] = other[place] ^ torch.tensor(1 << bit if bit < 63 else -(1 << 63))
            changed = words ^ random_words(other[0], other[1], other[2], 4000)
            flipped = sum(int(((changed >> position) & 1).sum()) for position in range(32))
            assert flipped / (32 * 4000) == pytest.approx(0.5, abs=0.006)
