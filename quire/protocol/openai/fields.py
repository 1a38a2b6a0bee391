"""The fields of a request body, taken out one by one: each is of its type, and none is left over unread."""

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from quire.core.errors import InvalidRequest
from quire.core.nearest import did_you_mean

_WORDS: dict[type, str] = {str: "text", bool: "true or false", int: "a whole number", dict: "an object", list: "a list"}
_SHOW = 60
_LONGEST_NAME = 64
"""Of a field that is repeated in an error."""
_LARGEST = (1 << 63) - 1
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
    ) -> None:
        """Refuses a field that is not `known`: it would be ignored. `where` is put before names in errors.

        `unsupported` gives the reason for fields that clients may well expect.
        """
        self._values = {name: as_whole(value) for name, value in values.items() if value is not None}
        self._where = where
        known = frozenset(known)
        for name, value in self._values.items():
            if name not in known:
                raise self._unknown(name, known, unsupported or {})
            if isinstance(value, int) and abs(value) > _LARGEST:
                raise refuse(where + name, value, "a number that fits 64 bits")

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
        if name not in self._values:
            return
        given = self._values[name]
        # true equals 1 to Python but not to a client
        if not any(given == each and isinstance(given, bool) == isinstance(each, bool) for each in allowed):
            words = " or ".join("left out" if each is None else str(each).lower() for each in allowed)
            raise refuse(self._where + name, given, f"{words}, for nothing else is supported")

    def present(self, *names: str) -> dict[str, Any]:
        """Those of `names` that were given, as they came."""
        return {name: self._values[name] for name in names if name in self._values}

    def _unknown(self, name: str, known: Iterable[str], unsupported: Mapping[str, str]) -> InvalidRequest:
        if name in unsupported:
            return InvalidRequest(f"{self._where}{name} is not supported: {unsupported[name]}", field=name)
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
