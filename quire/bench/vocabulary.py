"""What random prompts are made of: token ids, or words that are one token each.

With the model's tokenizer both are exact. Without it, ids are taken from a range that every usual model has, and words
from a list of short common ones, which most tokenizers keep whole.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol

USUAL_IDS = range(1000, 30_000)
_USUAL_WORDS = """
time year people way day man thing woman life child world school state family student group country problem
hand part place case week company system program question work government number night point home water room
mother area money story fact month lot right study book eye job word business issue side kind head house
service friend father power hour game line end member law car city name team minute idea body back parent face
level office door health person art war history party result change morning reason research girl guy moment
air teacher force
""".split()  # noqa: SIM905
_MOST_WORDS = 2000
_SHORTEST_WORD = 3


class Tokens(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...
    def id_to_token(self, token_id: int) -> str | None: ...
    def is_special(self, token_id: int) -> bool: ...


class Vocabulary:
    """Draws prompts of a length in tokens, and counts the tokens of texts where a tokenizer is there."""

    def __init__(self, tokenizer: Tokens | None = None) -> None:
        self._tokenizer = tokenizer
        self._ids: Sequence[int] = USUAL_IDS if tokenizer is None else _ordinary_ids(tokenizer)
        self._words: Sequence[str] = ()

    @property
    def is_exact(self) -> bool:
        """Whether lengths are those of the model's own tokenizer."""
        return self._tokenizer is not None

    def ids(self, count: int, draw: Random) -> list[int]:
        return draw.choices(self._ids, k=count)

    def text(self, count: int, draw: Random) -> str:
        """So many words."""
        if not self._words:
            self._words = _USUAL_WORDS if self._tokenizer is None else _whole_words(self._tokenizer, self._ids)
        return " ".join(draw.choices(self._words, k=count))

    def count(self, text: str) -> int | None:
        """Tokens of a text alone; None where nobody can count."""
        return None if self._tokenizer is None else len(self._tokenizer.encode(text, add_special_tokens=False))


def _ordinary_ids(tokenizer: Tokens) -> list[int]:
    """All that stand for text; the vocabulary ends where there is no token of the next number."""
    found, number = [], 0
    while tokenizer.id_to_token(number) is not None:
        if not tokenizer.is_special(number):
            found.append(number)
        number += 1
    return found


def _whole_words(tokenizer: Tokens, ids: Sequence[int]) -> list[str]:
    """Words that are one token wherever they stand behind a space; the usual ones where a tokenizer has none."""
    found: list[str] = []
    for number in Random(0).sample(ids, k=len(ids)):
        word = tokenizer.decode([number]).strip()
        if len(word) < _SHORTEST_WORD or not (word.isascii() and word.isalpha()):
            continue
        if len(tokenizer.encode(f" {word} {word}", add_special_tokens=False)) == 2:
            found.append(word)
        if len(found) == _MOST_WORDS:
            break
    return found or list(_USUAL_WORDS)
