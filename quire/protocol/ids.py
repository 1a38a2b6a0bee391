"""The ids of answers, and of what clients store."""

import hashlib
import re
import secrets
from contextvars import ContextVar

_ID = re.compile(r"[A-Za-z]{1,16}[-_][A-Za-z0-9]{16,64}")
_LENGTH = 48


class RepeatableIds:
    """Ids drawn from a seed: an answer that goes on at another server is read there from its beginning, and must come
    by the same ids in the same order."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn = 0

    def draw(self) -> str:
        self._drawn += 1
        return hashlib.sha256(f"{self._seed}/{self._drawn}".encode()).hexdigest()[:_LENGTH]


_REPEATABLE: ContextVar[RepeatableIds | None] = ContextVar("repeatable_ids", default=None)


def repeat_ids(seed: int) -> None:
    """From here on, ids of this task and of those it starts are drawn from `seed`."""
    _REPEATABLE.set(RepeatableIds(seed))


def new_id(prefix: str) -> str:
    """An id that cannot be guessed; `prefix` is what OpenAI's ids begin with, such as resp_ or file-."""
    repeatable = _REPEATABLE.get()
    return prefix + (secrets.token_hex(_LENGTH // 2) if repeatable is None else repeatable.draw())


def is_id(text: str) -> bool:
    """Whether a client's text could be an id at all."""
    return _ID.fullmatch(text) is not None
