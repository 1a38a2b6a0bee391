"""Thinking: where a sequence stands in the thinking part of its output. No grammar, no torch."""

from enum import Enum

from quire.core.reasoning import ReasoningPart
from quire.sampling.grammar.end_text import EndText


class Stage(Enum):
    """In this order; a sequence that does not think goes from the first to the last."""

    BEFORE = 0
    """All that was said so far, perhaps nothing, is the beginning of the start marker."""
    WITHIN = 1
    BEHIND = 2


class Thinking:
    """Told every token of an output, in order."""

    def __init__(self, part: ReasoningPart, end_text: EndText | None = None) -> None:
        """With `end_text` the part also ends where other tokens than those of its end give the same text."""
        self._part = part
        self._end_text = end_text
        self._said = b""
        """The end of the text within the part, no longer than the end marker; of use with `end_text` alone."""
        self.stage = Stage.WITHIN if part.is_open else Stage.BEFORE
        self._started = 0
        """Tokens of the start marker that were said."""
        self._ended = 0
        """Tokens of the end marker that the output ends with, within the part."""
        self._thoughts = 0
        """Tokens within the part that are not part of its end, as far as is known."""

    @property
    def opening(self) -> int | None:
        """The token that would go on with the start marker; None where there is nothing to go on with."""
        return self._part.start[self._started] if self.stage is Stage.BEFORE else None

    @property
    def forced(self) -> int | None:
        """The next token of the end marker, where the budget leaves nothing else."""
        budget = self._part.budget
        if self.stage is not Stage.WITHIN or budget is None or self._thoughts < budget:
            return None
        return self._part.end[self._ended]

    @property
    def ruled_out(self) -> frozenset[int]:
        """Tokens that would be the end of the part and the beginning of the answer at once."""
        if self.stage is not Stage.WITHIN or self._end_text is None:
            return frozenset()
        return self._end_text.running_on(self._said)

    def advance(self, token: int) -> None:
        if self.stage is Stage.BEFORE:
            if token != self._part.start[self._started]:
                self.stage = Stage.BEHIND
                return
            self._started += 1
            if self._started == len(self._part.start):
                self.stage = Stage.WITHIN
        elif self.stage is Stage.WITHIN:
            self._think(token)

    def _think(self, token: int) -> None:
        end = self._part.end
        said = (*end[: self._ended], token)
        # the longest beginning of the marker that the output now ends with
        self._ended = next(size for size in range(len(said), -1, -1) if said[len(said) - size :] == end[:size])
        self._thoughts += len(said) - self._ended
        if self._ended == len(end) or self._ends_in_text(token):
            self.stage = Stage.BEHIND

    def _ends_in_text(self, token: int) -> bool:
        if self._end_text is None:
            return False
        said, end = self._said + self._end_text.spelled(token), self._end_text.text
        self._said = said[-len(end) :]
        return end in said


def most_tokens(part: ReasoningPart, budget: int) -> int:
    """Of an output at the end of its thinking: what looked like the end may have been thought when the budget is spent,
    and then the whole end is written."""
    return len(part.start) + budget + 2 * len(part.end)
