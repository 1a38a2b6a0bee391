"""VocabularyMap: which tokens of a smaller model's vocabulary stand for those of a large one, for which it drafts."""

import logging
from dataclasses import dataclass
from pathlib import Path

from quire.core.errors import ConfigError
from quire.text.load import has_tokenizer, load_tokenizer
from quire.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)

NONE = -1
"""In place of a token: the small vocabulary has none that reads the same."""
_NOTHING = (False, b"")
"""The reading of an id that is no token."""


@dataclass(frozen=True, slots=True)
class VocabularyMap:
    """By token of the large model."""

    same: list[int]
    """The small model's token that adds the same bytes to a text, or NONE. Each of its tokens is here once at most."""
    read: list[int]
    """What the small model reads in its place: that token, or the last of those that the small vocabulary cuts its text
    into. A guess is enough: what comes of it are drafts, and the large model verifies them."""

    @property
    def num_same(self) -> int:
        return len(self.same) - self.same.count(NONE)


def map_vocabulary(large_path: Path, large_size: int, small_path: Path, small_size: int) -> VocabularyMap | None:
    """Between the models at these paths, whose logits have so many columns; None where both have the same tokens."""
    if large_size == small_size and not has_tokenizer(large_path) and not has_tokenizer(small_path):
        return None  # numbers are all that anybody knows of their tokens
    large, small = load_tokenizer(large_path), load_tokenizer(small_path)
    if large_size == small_size and all(_is_in_place(large, small, number) for number in range(large_size)):
        return None
    same = _same_readings(large, large_size, small, small_size)
    if all(token == NONE for token in same):
        raise ConfigError(
            f"{small_path.name} cannot draft for {large_path.name}: their vocabularies have no token in common; give a "
            "smaller model of the same family."
        )
    _match_roles(same, large, small)
    found = VocabularyMap(same, _read(large, small, same, small_size))
    _log.info(
        "%s drafts in a vocabulary of its own, which has %d of the %d tokens of %s",
        *(small_path.name, found.num_same, large.vocab_size, large_path.name),
    )
    return found


def _is_in_place(large: Tokenizer, small: Tokenizer, number: int) -> bool:
    """Whether both spell a token alike; or neither has one."""
    return large.id_to_token(number) == small.id_to_token(number)


def _same_readings(large: Tokenizer, large_size: int, small: Tokenizer, small_size: int) -> list[int]:
    large_ids, small_ids = (
        range(min(tokenizer.vocab_size, size)) for tokenizer, size in ((large, large_size), (small, small_size))
    )
    in_place = {number for number in large_ids if number in small_ids and _is_in_place(large, small, number)}
    by_reading: dict[tuple[bool, bytes], int] = {}
    for number in small_ids:
        if number not in in_place:
            by_reading.setdefault(_reading(small, number), number)
    by_reading.pop(_NOTHING, None)
    same = [NONE] * large_size
    for number in large_ids:
        # taken out, so that no second token of the large model competes for it
        same[number] = number if number in in_place else by_reading.pop(_reading(large, number), NONE)
    return same


def _match_roles(same: list[int], large: Tokenizer, small: Tokenizer) -> None:
    """What begins and ends a text is the same however it is spelled, unless its spelling stands for something else."""
    taken = set(same)
    roles = (
        (large.bos_token_id, small.bos_token_id),
        *((number, small.eos_token_id) for number in large.eos_token_ids),
    )
    for number, other in roles:
        if number is not None and other is not None and same[number] == NONE and other not in taken:
            same[number] = other
            taken.add(other)


def _reading(tokenizer: Tokenizer, number: int) -> tuple[bool, bytes]:
    """Whether a token is special, and what it adds to a text."""
    return tokenizer.is_special(number), tokenizer.token_bytes(number)


def _read(large: Tokenizer, small: Tokenizer, same: list[int], small_size: int) -> list[int]:
    read = list(same)
    others = [number for number, token in enumerate(same) if token == NONE]
    texts = [large.token_bytes(number).decode(errors="replace") for number in others]
    for number, ids in zip(others, small.encode_batch(texts, add_special_tokens=False), strict=True):
        read[number] = ids[-1] if ids and ids[-1] < small_size else 0
    return read
