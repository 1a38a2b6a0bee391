"""Stages: when a step runs on each stage of a pipeline, on the virtual clock. One stage is a device on its own."""

from collections.abc import Sequence


class Stages:
    """All take equally long for a step: layers are cut so. A stage begins a step when it has done the one before, and
    when the stage before has passed it on; the first one also waits for the tokens that its rows continue.
    """

    def __init__(self, count: int) -> None:
        self._free = [0.0] * count
        """When each stage has done all that it was given."""
        self._sampled: dict[int, float] = {}
        """By row: when the last token it was given was there."""

    def run(
        self, now: float, rows: Sequence[int], num_sampling: int, seconds: float, hop: float
    ) -> tuple[float, float]:
        """When the last stage begins and ends a step of so many `seconds` a stage; `hop` is what passing it on takes.
        The first `num_sampling` of its rows get a token by it."""
        start = now
        if len(self._free) > 1:
            start = max(now, max((self._sampled.get(row, 0.0) for row in rows), default=0.0))
        for stage, free in enumerate(self._free):
            start = max(start, free)
            self._free[stage] = end = start + seconds
            begun, start = start, end + hop
        if len(self._free) > 1:
            self._sampled.update(dict.fromkeys(rows[:num_sampling], end))
        return begun, end
