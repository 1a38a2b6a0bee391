"""The fields of a request body, taken out one by one: each is of its type, and what is left over unread is noted.

What changes an answer is honoured or refused; what does not is taken and named in `Ignored`.
"""

import reprlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from quire.core.errors import InvalidRequest
from quire.core.nearest import did_you_mean
from quire.protocol.ignored import Ignored

_WORDS: dict[type, str] = {str: "text", bool: "true or false", int: "a whole number", dict: "an object", list: "a list"}
_SHOW = 60
_LONGEST_NAME = 64
"""Of a field that is repeated in an error."""
_LARGEST = (1 << 63) - 1
_NOTHING: tuple[Any, ...] = (False, "", [], {})
_T = TypeVar("_T")


def refuse(field: str, given: object, allowed: str) -> InvalidRequest:
    """An error that names the field, what was given and what may be."""
    shown = _shown(given)
    return InvalidRequest(
        f"{field} is {shown}; it must be {allowed}", field=field.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0]
    )


class Fields:
    """A JSON object that is being read. A field that is null counts as not given, as OpenAI's clients mean it."""

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        known: Iterable[str],
        where: str = "",
        unsupported: Mapping[str, str] | None = None,
        ignored: Ignored | None = None,
    ) -> None:
        """Notes fields that are not `known` in `ignored`; without one it refuses them. `where` is put before names.

        `unsupported` are fields that would change the answer, with the reason why they are refused. An empty value
        asks for nothing.
        """
        self.ignored = Ignored(strict=True) if ignored is None else ignored
        self._where = where
        self._values: dict[str, Any] = {}
        known, unsupported = frozenset(known), unsupported or {}
        for name, given in values.items():
            if given is None or (name in unsupported and given in _NOTHING):
                continue
            if name in unsupported:
                raise InvalidRequest(f"{where}{name} is not supported: {unsupported[name]}", field=name)
            if name not in known:
                self.ignored.note(where + name, partial(self._unknown, name, known))
                continue
            value = self._values[name] = as_whole(given)
            if isinstance(value, int) and abs(value) > _LARGEST:
                raise refuse(where + name, value, "a number that fits 64 bits")

    def inside(
        self, where: str, values: Mapping[str, Any], known: Iterable[str], unsupported: Mapping[str, str] | None = None
    ) -> "Fields":
        """An object within this one, read in the same way; `where` is its whole name."""
        return Fields(values, known=known, where=f"{where}.", unsupported=unsupported, ignored=self.ignored)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Any:
        """As it came; None when it was not given."""
        return self._values.get(name)

    def text(self, name: str, *, longest: int | None = None, shortest: int = 0) -> str | None:
        found = self._typed(name, str)
        if found is not None and longest is not None and not shortest <= len(found) <= longest:
            raise refuse(self._where + name, found, f"text of {shortest} to {longest} characters")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        found = self._typed(name, bool)
        return default if found is None else found

    def whole(self, name: str, low: int | None = None, high: int | None = None) -> int | None:
        found = self._typed(name, int)
        if found is not None and not (low is None or low <= found) & (high is None or found <= high):
            raise refuse(self._where + name, found, f"a whole number from {low} to {high}")
        return found

    def object(self, name: str) -> dict[str, Any] | None:
        return self._typed(name, dict)

    def list(self, name: str, most: int) -> list[Any] | None:
        found = self._typed(name, list)
        if found is not None and len(found) > most:
            raise refuse(self._where + name, f"a list of {len(found)}", f"a list of at most {most}")
        return found

    def one_of(self, name: str, allowed: Iterable[str]) -> str | None:
        """A word of a few."""
        found, words = self._typed(name, str), tuple(allowed)
        if found is not None and found not in words:
            raise refuse(self._where + name, found, f"one of {', '.join(words)}")
        return found

    def only(self, name: str, *allowed: Any) -> None:
        """A field that is known, and of which nothing but `allowed` can be done."""
        error = self._beside(name, allowed)
        if error is not None:
            raise error

    def hint(self, name: str, *allowed: Any) -> None:
        """As `only`, of a field that changes no answer: another value is taken, and noted."""
        error = self._beside(name, allowed)
        if error is not None:
            self.ignored.note(self._where + name, lambda: error)

    def as_hint(self, name: str, read: Callable[[], _T | None]) -> _T | None:
        """What `read` makes of a field that changes no answer; where it refuses it, that is noted instead."""
        try:
            return read()
        except InvalidRequest as error:
            refused = error
        self.ignored.note(self._where + name, lambda: refused)
        return None

    def present(self, *names: str) -> dict[str, Any]:
        """Those of `names` that were given, as they came."""
        return {name: self._values[name] for name in names if name in self._values}

    def _beside(self, name: str, allowed: tuple[Any, ...]) -> InvalidRequest | None:
        if name not in self._values:
            return None
        given = self._values[name]
        # true equals 1 to Python but not to a client
        if any(given == each and isinstance(given, bool) == isinstance(each, bool) for each in allowed):
            return None
        words = " or ".join([*(str(each).lower() for each in allowed), "left out"])
        return refuse(self._where + name, given, f"{words}, for nothing else is supported")

    def _unknown(self, name: str, known: Iterable[str]) -> InvalidRequest:
        short = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "..."
        short = short.encode(errors="backslashreplace").decode()
        return InvalidRequest(
            f"{self._where}{short} is not supported; leave it out.{did_you_mean(short, sorted(known))}",
            field=self._where + short,
        )

    def _typed(self, name: str, kind: type[_T]) -> _T | None:
        value = self._values.get(name)
        # true is a number to Python but not to a client
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise refuse(self._where + name, value, _WORDS[kind])
        return value


def as_whole(value: Any) -> Any:
    """A whole number that a client wrote as 5.0 is one, as JSON schemas say too; all else stays as it is."""
    return int(value) if type(value) is float and value.is_integer() and abs(value) <= _LARGEST else value


def object_of(values: object) -> Mapping[str, Any]:
    """A body that is an object, or an error that says so."""
    if not isinstance(values, Mapping):
        raise refuse("body", values, "an object")
    return values


def _shown(given: object) -> str:
    """Short, and quick to make whatever was given: a list of a million numbers is not spelled out to be cut."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = _SHOW
    shown = short.repr(given)
    return shown if len(shown) <= _SHOW else shown[: _SHOW - 3] + "..."
