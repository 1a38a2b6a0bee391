"""ReadoutPace: how many tokens of readouts a step may have beside streams, so that those hardly notice.

Measures what steps of streams take alone, now and then without readouts for the purpose, and how much a token more
adds. It compares steps that lie close together, so a device that others use too does not mislead it.
"""

from quire.scheduler.pacing import StepLoad

STRETCH = 1.45
"""How much longer readouts may make a step of streams."""
ALONE_EVERY = 16
"""Steps with readouts between two without, which tell what streams take alone."""
SMALLEST_SHARE = 32
"""Readouts get at least one in so many of a step's tokens: fewer are not worth what a step costs beside its tokens."""
_RECENT = 0.3
"""Weight of the last step in what is measured."""


class ReadoutPace:
    """Of one scheduler."""

    def __init__(self, max_num_batched_tokens: int) -> None:
        self._smallest = max(1, max_num_batched_tokens // SMALLEST_SHARE)
        self._alone: float | None = None
        """Seconds of a step of streams without anything beside it."""
        self._each: float | None = None
        """Seconds that a prompt token adds."""
        self._last = self._smallest
        """Prompt tokens of the last step that had some."""
        self._since_alone = 0

    def tokens(self, decodes: int, most: int) -> int:
        """How many tokens readouts may have in a step with so many decodes, of at most `most`."""
        if not decodes:
            return most
        if self._alone is None or self._since_alone >= ALONE_EVERY:
            return 0
        fitting = 0 if not self._each else int((STRETCH - 1) * self._alone / self._each)
        return min(most, max(self._smallest, min(fitting, 2 * self._last)))

    def observe(self, load: StepLoad, seconds: float) -> None:
        """A step of this load took that long."""
        if not load.decodes:
            return
        if not load.prompt_tokens:
            self._alone = _mixed(self._alone, seconds)
            self._since_alone = 0
            return
        self._since_alone += 1
        self._last = load.prompt_tokens
        if self._alone is not None:
            self._each = _mixed(self._each, max(0.0, seconds - self._alone) / load.prompt_tokens)


def _mixed(before: float | None, now: float) -> float:
    return now if before is None else before + _RECENT * (now - before)
