"""ReadoutPace: how many tokens of readouts a step may have beside streams, so that those hardly notice.

Measures what steps of streams take alone, now and then without readouts for the purpose, and how much a token more
adds. It compares steps that lie close together, and a single slow one counts for nothing, so a device that others use
too does not mislead it.
"""

from collections import deque
from statistics import median

from quire.scheduler.pacing import StepLoad

STRETCH = 1.5
"""How much longer readouts may make a step of streams."""
ALONE_EVERY = 16
"""Steps with readouts between two without, which tell what streams take alone."""
SMALLEST_SHARE = 32
"""Readouts get at least one in so many of a step's tokens: fewer are not worth what a step costs beside its tokens."""
_RECENT = 4
"""Steps of each kind that are remembered."""


class ReadoutPace:
    """Of one scheduler."""

    def __init__(self, max_num_batched_tokens: int) -> None:
        self._smallest = max(1, max_num_batched_tokens // SMALLEST_SHARE)
        self._alone: deque[float] = deque(maxlen=_RECENT)
        """Seconds of steps of streams without anything beside them."""
        self._each: deque[float] = deque(maxlen=_RECENT)
        """Seconds that a prompt token added."""
        self._last = self._smallest
        """Prompt tokens of the last step that had some."""
        self._since_alone = 0

    def tokens(self, decodes: int, most: int) -> int:
        """How many tokens readouts may have in a step with so many decodes, of at most `most`."""
        if not decodes:
            return most
        if not self._alone or self._since_alone >= ALONE_EVERY:
            return 0
        each = median(self._each) if self._each else 0.0
        fitting = int((STRETCH - 1) * min(self._alone) / each) if each else 0
        return min(most, max(self._smallest, min(fitting, 2 * self._last)))

    def observe(self, load: StepLoad, seconds: float) -> None:
        """A step of this load took that long."""
        if not load.decodes:
            return
        if not load.prompt_tokens:
            self._alone.append(seconds)
            self._since_alone = 0
            return
        self._since_alone += 1
        self._last = load.prompt_tokens
        if self._alone:
            self._each.append(max(0.0, seconds - min(self._alone)) / load.prompt_tokens)
