"""Reading structural tags, in the two forms in which clients of vLLM write them.

`{"structures": [{"begin": "<function=f>", "schema": {...}, "end": "</function>"}], "triggers": ["<function="]}` is the
older one; `{"type": "structural_tag", "format": {"type": "triggered_tags", ...}}` nests formats, as XGrammar does.
Whatever cannot be honoured is refused by its JSON pointer.
"""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec

from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.tag_formats import (
    ContextFree,
    Either,
    Format,
    FreeText,
    InOrder,
    Json,
    Pattern,
    Repeated,
    Separated,
    Tag,
    Triggered,
    Words,
)

MOST_PARTS = 256
"""Tags, triggers or elements in one list."""
MOST_REPEATS = 10_000
_WORDS: dict[type, str] = {str: "text", bool: "true or false", int: "a whole number", list: "a list", dict: "an object"}
_T = TypeVar("_T")


def read_structural_tag(text: str) -> Format:
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GrammarError(f"structural_tag cannot be read: {error}; it must be a JSON object") from None
    given = _Given(values, "", ("type", "format", "structures", "triggers"))
    given.only("type", "structural_tag")
    if given.get("format") is not None:
        given.only("structures", None)
        given.only("triggers", None)
        return _format(given.take("format", dict), "/format")
    return _triggered(given, "structures", _structure)


def refused(pointer: str, given: object, allowed: str) -> GrammarError:
    shown = repr(given)
    shown = shown if len(shown) <= 64 else shown[:61] + "..."
    return GrammarError(f"structural_tag at {pointer or 'its root'} is {shown}; it must be {allowed}")


class _Given:
    """An object of which every field is known."""

    def __init__(self, values: object, pointer: str, known: Collection[str]) -> None:
        if not isinstance(values, dict):
            raise refused(pointer, values, "an object")
        self.pointer = pointer
        self._values = {name: value for name, value in values.items() if value is not None}
        for name, value in self._values.items():
            if name not in known:
                raise refused(f"{pointer}/{str(name)[:64]}", value, f"left out: the fields here are {', '.join(known)}")

    def get(self, name: str) -> object:
        """As it came; None when it was not given."""
        return self._values.get(name)

    def take(self, name: str, kind: type[_T], default: _T | None = None) -> _T:
        value = self._values.get(name, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise refused(f"{self.pointer}/{name}", value, _WORDS[kind])
        return value

    def parts(self, name: str, read: Callable[[Any, str], _T], least: int = 1) -> tuple[_T, ...]:
        found = self.take(name, list, [] if least == 0 else None)
        if not least <= len(found) <= MOST_PARTS:
            raise refused(f"{self.pointer}/{name}", f"a list of {len(found)}", f"a list of {least} to {MOST_PARTS}")
        return tuple(read(each, f"{self.pointer}/{name}/{place}") for place, each in enumerate(found))

    def only(self, name: str, allowed: object) -> None:
        """A field that is known, and of which nothing else can be done."""
        if self._values.get(name, allowed) != allowed:
            words = "left out" if allowed is None else f"{allowed!r} or left out"
            raise refused(f"{self.pointer}/{name}", self._values[name], words)


def _format(values: object, pointer: str) -> Format:
    kind = values.get("type") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in _FORMATS:
        raise refused(f"{pointer}/type", kind, f"one of {', '.join(_FORMATS)}")
    known, read = _FORMATS[kind]
    return read(_Given(values, pointer, ("type", *known)))


def _text(value: object, pointer: str) -> str:
    if not isinstance(value, str) or not value:
        raise refused(pointer, value, "text that is not empty")
    return value


def _json(given: _Given, name: str = "json_schema") -> Json:
    given.only("style", "json")
    given.only("any_order", False)
    return Json({} if given.get(name) is True else given.take(name, dict))


def _free_text(given: _Given) -> FreeText:
    given.only("max_tokens", None)
    given.only("max_chars", None)
    return FreeText(given.parts("excludes", _text, 0), given.pointer)


def _content(given: _Given) -> Format:
    return _format(given.take("content", dict), f"{given.pointer}/content")


def _repeated(given: _Given) -> Repeated:
    least, most = given.take("min", int), given.take("max", int)
    if not 0 <= least <= MOST_REPEATS:
        raise refused(f"{given.pointer}/min", least, f"0 to {MOST_REPEATS}")
    if most != -1 and not max(1, least) <= most <= MOST_REPEATS:
        raise refused(f"{given.pointer}/max", most, f"min to {MOST_REPEATS} and at least 1, or -1 for no limit")
    return Repeated(_content(given), least, None if most == -1 else most)


def _tag(values: object, pointer: str) -> Tag:
    given = _Given(values, pointer, ("type", *_OF_TAG))
    given.only("type", "tag")  # within formats that consist of tags it may be left out
    return _read_tag(given)


def _read_tag(given: _Given) -> Tag:
    begin, several = given.take("begin", str), isinstance(given.get("end"), list)
    ends = given.parts("end", _text) if several else (given.take("end", str),)
    return Tag(begin, _content(given), ends, given.pointer)


def _structure(values: object, pointer: str) -> Tag:
    """A tag of the older form."""
    given = _Given(values, pointer, ("begin", "schema", "end"))
    return Tag(given.take("begin", str), _json(given, "schema"), (given.take("end", str),), pointer)


def _triggered(given: _Given, tags: str = "tags", read: Callable[[Any, str], Tag] = _tag) -> Triggered:
    found = Triggered(
        triggers=given.parts("triggers", _text),
        tags=given.parts(tags, read),
        excluded=given.parts("excludes", _text, 0),
        at_least_one=given.take("at_least_one", bool, False),
        stop_after_first=given.take("stop_after_first", bool, False),
        pointer=given.pointer,
    )
    for place, trigger in enumerate(found.triggers):
        if trigger in found.triggers[:place]:
            raise refused(f"{given.pointer}/triggers/{place}", trigger, "another one: it comes twice")
    for tag in found.tags:
        if not any(tag.begin.startswith(trigger) for trigger in found.triggers):
            raise refused(f"{tag.pointer}/begin", tag.begin, "text that starts with one of the triggers")
    return found


def _separated(given: _Given) -> Separated:
    return Separated(
        tags=given.parts("tags", _tag),
        separator=given.take("separator", str),
        at_least_one=given.take("at_least_one", bool, False),
        stop_after_first=given.take("stop_after_first", bool, False),
    )


_Reader = Callable[[_Given], Format]
_OF_TAG = ("begin", "content", "end")
_SEVERAL = ("tags", "at_least_one", "stop_after_first")
_FORMATS: dict[str, tuple[tuple[str, ...], _Reader]] = {
    "const_string": (("value",), lambda given: Words(given.take("value", str))),
    "json_schema": (("json_schema", "style", "any_order"), _json),
    "regex": (("pattern",), lambda given: Pattern(_text(given.take("pattern", str), f"{given.pointer}/pattern"))),
    "grammar": (("grammar",), lambda given: ContextFree(_text(given.take("grammar", str), f"{given.pointer}/grammar"))),
    "any_text": (("excludes", "max_tokens", "max_chars"), _free_text),
    "sequence": (("elements",), lambda given: InOrder(given.parts("elements", _format))),
    "or": (("elements",), lambda given: Either(given.parts("elements", _format))),
    "optional": (("content",), lambda given: Repeated(_content(given), 0, 1)),
    "plus": (("content",), lambda given: Repeated(_content(given), 1, None)),
    "star": (("content",), lambda given: Repeated(_content(given), 0, None)),
    "repeat": (("content", "min", "max"), _repeated),
    "tag": (_OF_TAG, _read_tag),
    "triggered_tags": (("triggers", "excludes", *_SEVERAL), _triggered),
    "tags_with_separator": (("separator", *_SEVERAL), _separated),
}
"""By type: the fields beside it, and what reads them."""
