"""AnswerParser: the text of one answer as it comes, told apart into thinking, content and tool calls.

One engine for every format. It holds text back only while that may still be the beginning of a marker or of a call
whose function is not known yet, and it never fails: what turns out to be no call is content.
"""

from collections.abc import Callable
from dataclasses import replace

from quire.core.status import FinishReason
from quire.protocol.parsers.call_format import CallFormat
from quire.protocol.parsers.parts import Malformed, Part, Reader, changed
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.spacing import Spacing
from quire.protocol.parsers.thinking import Thinking
from quire.protocol.parsers.tools import Tools


class AnswerParser:
    """Reads one answer. `push` text of any size, then `finish`; the parts, joined, do not depend on the sizes."""

    def __init__(
        self,
        thinking: Thinking | None,
        is_open: bool,
        form: CallFormat | None,
        tools: Tools,
        *,
        hidden: frozenset[str],
        identities: Callable[[int], str],
        shows_thinking: bool = True,
    ) -> None:
        """`is_open`: the answer begins within its thinking. `hidden` are markers that are never content, being special
        tokens; `identities` gives a call its id by its number."""
        self._is_plain = thinking is None and form is None and not hidden
        self._shows_thinking = shows_thinking
        self._thinking = thinking
        self._is_open = is_open
        self._form = form
        self._tools = tools
        self._hidden = hidden
        self._identities = identities
        self._source = Source(hidden)
        self._spacing = Spacing()
        self._number = -1
        self._reader = self._answer()

    def push(self, text: str) -> list[Part]:
        """What more text adds."""
        if self._is_plain:
            return [Part("content", text)] if text else []
        self._source.push(text)
        return self._read()

    def finish(self, reason: FinishReason = "stop") -> list[Part]:
        """What was held back, when no more text comes. Anything but a stop has cut the text off: half a marker, or half
        a call whose function is not known, is left out.
        """
        self._source.close(is_cut=reason != "stop")
        return [*self._read(), *self._spacing.end()]

    def _read(self) -> list[Part]:
        found: list[Part] = []
        for part in self._reader:
            if part is None:
                break
            found += [one for one in self._spacing.spaced(part) if self._shows_thinking or one.kind != "reasoning"]
        return found

    def _answer(self) -> Reader[None]:
        if self._thinking is not None and not self._thinking.in_sections:
            yield from self._think(self._thinking)
        while (opening := (yield from self._content())) is not None:
            if self._form is not None and opening in (*self._form.opens, *self._form.bare):
                yield from self._section(self._form, opening)
            # any other is a marker where it means nothing, and being a special token it is no text either

    def _think(self, thinking: Thinking) -> Reader[None]:
        source = self._source
        source.mark = source.at
        yield from source.space()
        is_begun = yield from source.accept(thinking.start)
        if is_begun or self._is_open:
            source.mark = None
            yield from source.until((thinking.end,), "reasoning")
            self._spacing.part_of_its_own()
        else:
            self._take_back()

    def _content(self) -> Reader[str | None]:
        """Content up to the opening of a section, or to a marker that is hidden; None at the end."""
        source, form = self._source, self._form
        if form is not None and form.bare and not self._spacing.has_content:
            space = yield from source.space()
            if space:
                yield Part("content", space)
            opening = yield from source.accept(*form.bare)
            if opening is not None:
                return opening
        opens = () if form is None else form.opens
        return (yield from source.until((*opens, *self._hidden.difference(opens)), "content"))

    def _section(self, form: CallFormat, opening: str) -> Reader[None]:
        self._source.mark = self._source.at
        is_read = False

        def take(part: Part) -> Part | None:
            nonlocal is_read
            is_read, self._source.mark = True, None  # there is no way back, and its text need not be kept
            return self._numbered(part)

        try:
            yield from changed(form.read(self._source, opening, self._tools), take)
        except Malformed:
            if not is_read:
                if self._source.is_cut_off:
                    return
                if self._source.is_read_out:
                    # what reached the end without being a call is not searched for others: each might reach it again
                    self._form = None
                self._take_back()
                if opening not in self._hidden:
                    yield Part("content", opening)
                return
        self._source.mark = None
        if is_read:
            yield from self._ends(form.ends)
            self._spacing.part_of_its_own()

    def _ends(self, ends: tuple[str, ...]) -> Reader[None]:
        """All of `ends` that stand behind a section, with blank space between them."""
        found = bool(ends)
        while found:
            self._source.mark = self._source.at
            yield from self._source.space()
            found = (yield from self._source.accept(*ends)) is not None
        if ends:
            self._take_back()

    def _take_back(self) -> None:
        """Go on reading from the mark; what the text was cut off in is left out."""
        assert self._source.mark is not None
        if not self._source.is_cut_off:
            self._source.at = self._source.mark
        self._source.mark = None

    def _numbered(self, part: Part) -> Part | None:
        """A part of a call with its number; None for one of a call too many."""
        if part.kind not in ("call", "arguments"):
            return part
        self._number += part.kind == "call"
        if self._number > 0 and not self._tools.may_be_several:
            return None
        identity = self._identities(self._number) if part.kind == "call" else ""
        return replace(part, number=self._number, identity=identity)
