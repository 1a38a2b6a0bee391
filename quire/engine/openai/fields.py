"""The fields of a request body, taken out one by one: each is of its type, and none is left over unread."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from quire.core.errors import InvalidRequest
from quire.core.nearest import did_you_mean

_WORDS: dict[type, str] = {str: "text", bool: "true or false", int: "a whole number", dict: "an object", list: "a list"}
_SHOW = 60
_T = TypeVar("_T")


def refuse(field: str, given: object, allowed: str) -> InvalidRequest:
    """An error that names the field, what was given and what may be."""
    shown = repr(given)
    shown = shown if len(shown) <= _SHOW else shown[: _SHOW - 3] + "..."
    return InvalidRequest(
        f"{field} is {shown}; it must be {allowed}", field=field.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0]
    )


class Fields:
    """A JSON object that is being read. A field that is null counts as not given, as OpenAI's clients mean it."""

    def __init__(self, values: Mapping[str, Any], *, known: Iterable[str], where: str = "") -> None:
        """Refuses a field that is not `known`: it would be ignored. `where` is put before names in errors."""
        self._values = {name: value for name, value in values.items() if value is not None}
        self._where = where
        known = list(known)
        for name in self._values:
            if name not in known:
                raise InvalidRequest(
                    f"{where}{name} is not supported; leave it out.{did_you_mean(name, known)}", field=where + name
                )

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Any:
        """As it came; None when it was not given."""
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        return self._typed(name, str)

    def flag(self, name: str, default: bool = False) -> bool:
        found = self._typed(name, bool)
        return default if found is None else found

    def whole(self, name: str) -> int | None:
        return self._typed(name, int)

    def object(self, name: str) -> dict[str, Any] | None:
        return self._typed(name, dict)

    def only(self, name: str, *allowed: Any) -> None:
        """A field that is known, and of which nothing but `allowed` can be done."""
        if name in self._values and self._values[name] not in allowed:
            words = " or ".join("left out" if each is None else str(each).lower() for each in allowed)
            raise refuse(self._where + name, self._values[name], f"{words}, for nothing else is supported")

    def present(self, *names: str) -> dict[str, Any]:
        """Those of `names` that were given, as they came."""
        return {name: self._values[name] for name in names if name in self._values}

    def _typed(self, name: str, kind: type[_T]) -> _T | None:
        value = self._values.get(name)
        # true is a number to Python but not to a client
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise refuse(self._where + name, value, _WORDS[kind])
        return value
