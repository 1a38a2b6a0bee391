"""Inputs that are nearly right: a seed with a few of its bytes changed, cut, repeated or taken from another seed."""

import random
import struct
from collections.abc import Sequence

_MOST_CHANGES = 6
_LONGEST_PIECE = 64
_NUMBERS = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_WORDS = (
    b"null",
    b"-1",
    b"1e999",
    b"[[[[",
    b"{}",
    b'""',
    b"\xff\xfe",
    b"\x00",
    b"\xed\xa0\x80",
    b"9" * 40,
    b"\r\n",
    b"{%",
    b"}}",
)


def mutated(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """Another input each time, the same for the same state of `chance`."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, _MOST_CHANGES)):
        chance.choice(_CHANGES)(data, seeds, chance)
    return bytes(data)


def _flip(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _number(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    width, form = chance.choice(((1, "B"), (2, "H"), (4, "I"), (8, "Q")))
    value = chance.choice(_NUMBERS) & (1 << 8 * width) - 1
    at = chance.randrange(len(data) + 1)
    data[at : at + width] = struct.pack(f"<{form}", value)


def _word(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at : at + chance.choice((0, 1, 4))] = chance.choice(_WORDS)


def _cut(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    del data[at : at + chance.randint(1, _LONGEST_PIECE)]


def _end(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _again(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    piece = data[at : at + chance.randint(1, _LONGEST_PIECE)]
    data[at:at] = piece * chance.choice((1, 2, 50))


def _splice(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    other = chance.choice(seeds)
    start, at = chance.randrange(len(other) + 1), chance.randrange(len(data) + 1)
    data[at : at + _LONGEST_PIECE] = other[start : start + _LONGEST_PIECE]


_CHANGES = (_flip, _flip, _number, _number, _word, _cut, _end, _again, _splice)
