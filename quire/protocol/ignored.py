"""Ignored: the fields of one body that quire takes and does nothing about, for they change no answer.

Every reader notes them here; a header, a metric and the log name them. A strict server refuses them instead.
"""

import logging
import re
from collections.abc import Callable, Iterator

from quire.core.errors import InvalidRequest

MOST_NAMES = 32
"""Of one body; the rest are counted as one."""
LONGEST_NAME = 64
MORE = "more"
HEADER = "x-quire-ignored"
_MOST_LOGGED = 256
_INDEX = re.compile(r"\[\d+\]")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:$\[\]-]")
_log = logging.getLogger(__name__)


class Ignored:
    """Names in the order they came, each once, fit for a header: `messages[].annotations`."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._names: dict[str, None] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def note(self, name: str, error: Callable[[], InvalidRequest]) -> None:
        """`name` changes no answer; `error` makes what a strict server says of it."""
        if self._strict:
            raise error()
        short = _UNSAFE.sub("?", _INDEX.sub("[]", name[: 4 * LONGEST_NAME]))[:LONGEST_NAME]
        self._names[short if len(self._names) < MOST_NAMES or short in self._names else MORE] = None

    def header(self) -> str:
        """All names, for `x-quire-ignored`."""
        return ", ".join(self._names)


class IgnoredLog:
    """Logs each name once, and no more names than clients may make up."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def note(self, ignored: Ignored) -> None:
        for name in ignored:
            if name not in self._told and len(self._told) < _MOST_LOGGED:
                self._told.add(name)
                _log.info("requests have the field %s, which changes no answer here", name)
