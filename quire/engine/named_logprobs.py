"""NamedLogprobs: what is known of a sequence's positions, as callers read it: by token id, with the text of each token.

Dictionaries and texts are made when they are read, since most never are: a step would make hundreds of each.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from quire.core.logprobs import PositionLogprobs
from quire.core.outputs import Logprob
from quire.core.outputs import PositionLogprobs as Named
from quire.text.tokenizer import Tokenizer


class NamedLogprobs(Sequence[Any]):
    """A dictionary of `Logprob`, or None, for each position."""

    def __init__(self, tokenizer: Tokenizer | None, found: Iterable[PositionLogprobs | None] = ()) -> None:
        self._tokenizer = tokenizer
        self._found = list(found)

    def append(self, found: PositionLogprobs) -> None:
        self._found.append(found)

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, place: int | slice) -> Any:
        found = self._found[place]
        if isinstance(found, list):
            return NamedLogprobs(self._tokenizer, found)
        return None if found is None else _named(found, self._tokenizer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def _named(found: PositionLogprobs, tokenizer: Tokenizer | None) -> Named:
    def text(token: int) -> str | None:
        return None if tokenizer is None else tokenizer.decode([token], skip_special_tokens=False)

    named = {token: Logprob(value, rank, text(token)) for rank, (token, value) in enumerate(found.top, start=1)}
    named.setdefault(found.token, Logprob(found.logprob, found.rank, text(found.token)))
    for token, value in found.named:
        named.setdefault(token, Logprob(value, None, text(token)))
    return named
