"""Reading: how the answers to one request are read: each by a parser of its own, and all in the same way."""

import hashlib
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from quire.core.message import AnswerMessage
from quire.core.reasoning import ReasoningPart
from quire.core.status import FinishReason
from quire.protocol.ids import new_id
from quire.protocol.parsers.answer import AnswerParser
from quire.protocol.parsers.call_format import CallFormat
from quire.protocol.parsers.parts import add_parts
from quire.protocol.parsers.thinking import Thinking
from quire.protocol.parsers.tools import Tools

_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_ID_LENGTH = 24


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of the answers to a request before they are there. The default reads all text as content."""

    thinking: Thinking | None = None
    part: ReasoningPart | None = None
    """The thinking part as tokens."""
    form: CallFormat | None = None
    """How calls are written; None where none can be made."""
    tools: Tools = field(default_factory=Tools)
    hidden: frozenset[str] = frozenset()
    """Markers that are special tokens."""
    shows_thinking: bool = True
    spelled: Callable[[int], bytes] | None = None
    """What a token adds to a text, where a mark of thinking is several tokens: models write it in others too."""
    seed: str = field(default_factory=lambda: new_id(""))
    """Of the calls' ids, which are the same however often an answer is read."""

    @property
    def is_plain(self) -> bool:
        """Whether the text is all there is to an answer."""
        return self.thinking is None and self.form is None

    def parser(self, index: int) -> AnswerParser:
        """For the answer with this place among all of the request."""
        return AnswerParser(
            self.thinking,
            self.part is not None and self.part.is_open,
            self.form,
            self.tools,
            hidden=self.hidden,
            shows_thinking=self.shows_thinking,
            identities=partial(self._identity, index),
        )

    def message(self, index: int, text: str, reason: FinishReason | None = "stop") -> AnswerMessage:
        """A whole answer, which ended for this reason."""
        parser, message = self.parser(index), AnswerMessage()
        add_parts(message, parser.push(text))
        add_parts(message, parser.finish(reason or "stop"))
        return message

    def thinking_tokens(self, tokens: list[int]) -> int:
        """How many tokens of an answer were thinking."""
        if self.part is None:
            return 0
        if self.spelled is not None and self.thinking is not None:
            return self._thinking_in_text([self.spelled(token) for token in tokens], self.thinking)
        start, end = list(self.part.start), list(self.part.end)
        begins = 0
        if tokens[: len(start)] == start:
            begins = len(start)
        elif not self.part.is_open:
            return 0
        for place in range(begins, len(tokens) - len(end) + 1):
            if tokens[place : place + len(end)] == end:
                return place - begins
        return len(tokens) - begins

    def _thinking_in_text(self, spelled: list[bytes], thinking: Thinking) -> int:
        """How many tokens begin within it."""
        said, start, end = b"".join(spelled), thinking.start.encode(), thinking.end.encode()
        begun = len(start) if said.startswith(start) else 0
        if not begun and self.part is not None and not self.part.is_open:
            return 0
        ended = said.find(end, begun)
        places = [0, *accumulate(map(len, spelled))][:-1]
        return bisect_left(places, len(said) if ended < 0 else ended) - bisect_left(places, begun)

    def _identity(self, index: int, number: int) -> str:
        digest = hashlib.sha256(f"{self.seed} {index} {number}".encode()).digest()
        short = None if self.form is None else self.form.id_length
        letters = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest)
        return f"call_{letters[:_ID_LENGTH]}" if short is None else letters[:short]
