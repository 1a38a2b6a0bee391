"""Lark: a grammar while it is written, in llguidance's dialect of Lark."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quire.sampling.grammar.json_layout import JSON_LAYOUT
from quire.sampling.grammar.schema_rewriting import rewritten


class Lark:
    """Rules, and how a model's vocabulary spells markers."""

    def __init__(self, special: Callable[[str], int | None]) -> None:
        """`special` gives the id of a text that is one special token, and None for any other."""
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
