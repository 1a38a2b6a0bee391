"""Lark: a grammar while it is written, in llguidance's dialect of Lark."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quire.sampling.grammar.json_layout import JSON_LAYOUT
from quire.sampling.grammar.schema_rewriting import rewritten


def looks_like_a_tag(text: str) -> bool:
    """llguidance matches added tokens of this form by their id alone, special or not; letters never match them."""
    return text.startswith("<") and text.endswith(">")


def _between_slashes(pattern: str) -> str:
    """A regular expression as Lark writes one."""
    written = {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}
    return re.sub(r"\\.|[/\n]", lambda found: written.get(found[0], found[0]), pattern, flags=re.DOTALL)


class Lark:
    """Rules, and how a model's vocabulary spells markers."""

    def __init__(self, special: Callable[[str], int | None]) -> None:
        """`special` gives the id of a text that is one token and matches by its id alone, and None for any other."""
        self._special = special
        self._rules: list[str] = []

    def is_special(self, text: str) -> bool:
        return self._special(text) is not None

    def marker(self, text: str) -> str:
        """A text that may be a special token: those match by their id alone, never by their letters."""
        found = self._special(text)
        return self.quoted(text) if found is None else f"<[{found}]>"

    def quoted(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def json(self, schema: Mapping[str, Any]) -> str:
        """Values that a JSON schema describes."""
        return self.rule("json", "%json " + json.dumps({**rewritten(schema), "x-guidance": JSON_LAYOUT}))

    def text(self) -> str:
        """Any text, special tokens excepted."""
        return self.rule("text", r"/(.|\n)*/")

    def text_to(self, *ends: str) -> str:
        """Any text up to the first of `ends`, which is part of it."""
        return self.either(self._text_to(end) for end in ends)

    def text_like(self, pattern: str, before: str, end: str) -> str:
        """Text that follows a regular expression and has no `end` in it, up to `before` and `end`, which are part of
        it."""
        other = _between_slashes(rf"(.|\n)*{re.escape(end)}(.|\n)*")
        text = self.rule("TEXT", f"/{_between_slashes(pattern)}/ & ~/{other}/")
        return self.rule("text", f"{text} {self.quoted(before + end)}", "lazy")

    def _text_to(self, end: str) -> str:
        if self.is_special(end):
            return f"{self.text()} {self.marker(end)}"
        return self.rule("text", rf"/(.|\n)*/ {self.quoted(end)}", "lazy")

    def either(self, several: Iterable[str]) -> str:
        return "( " + " | ".join(several) + " )"

    def rule(self, kind: str, right: str, attribute: str = "") -> str:
        """A rule of its own; returns its name."""
        name = f"{kind}_{len(self._rules)}"
        self._rules.append(f"{name}{f'[{attribute}]' if attribute else ''}: {right}")
        return name

    def written(self, start: str) -> str:
        """The whole grammar."""
        return "\n".join([f"start: {start}", *self._rules]) + "\n"
