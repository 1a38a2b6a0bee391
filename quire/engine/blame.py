"""Blame: finds the requests that make steps throw, so that they fail alone.

A step that threw says only that one of its requests is bad. Half of them are tried while all others wait; a half
that throws is halved again, a half that makes progress is cleared, and one that throws alone is the one to blame.
"""

from dataclasses import dataclass

from quire.core.sequence import Sequence
from quire.engine.holds import Holds
from quire.scheduler.base import StepScheduler

TRIAL = "trial"
"""The reason for which requests are held while others are on trial."""


@dataclass(slots=True)
class _Trial:
    """Requests that run by themselves until each of them has made progress."""

    waiting: dict[str, int]
    """Request id → tokens it had when the trial began."""


class Blame:
    """The suspects of one engine. Empty as long as no step throws."""

    def __init__(self, scheduler: StepScheduler, holds: Holds) -> None:
        self._scheduler = scheduler
        self._holds = holds
        self._untried: list[list[str]] = []
        """Groups still to be tried, the next one last."""
        self._trial: _Trial | None = None

    def step_threw(self, sequences: list[Sequence]) -> list[str]:
        """A step with these sequences threw and was rolled back; returns the request that is to blame, once known."""
        suspects = list(dict.fromkeys(seq.request.id for seq in sequences))
        if self._trial is not None:
            # the members of the group that were not in the step are as suspect as before
            rest = [request for request in self._trial.waiting if request not in suspects]
            self._add(rest)
        guilty: list[str] = []
        if len(suspects) == 1:
            guilty = suspects
        else:
            middle = len(suspects) // 2
            self._add(suspects[middle:])
            self._add(suspects[:middle])
        self._next()
        return guilty

    def stepped(self) -> None:
        """A step went well: the trial is over once all its requests have made progress or ended."""
        if self._trial is None:
            return
        for request, had in list(self._trial.waiting.items()):
            if self._tokens(request) != had:
                del self._trial.waiting[request]
        if not self._trial.waiting:
            self._next()

    def arrived(self, request_id: str) -> None:
        """A new request waits for the end of the trial."""
        if self._trial is not None:
            self._holds.hold(request_id, TRIAL)

    def _add(self, group: list[str]) -> None:
        if group:
            self._untried.append(group)

    def _next(self) -> None:
        self._trial = None
        live = self._scheduler.live_requests
        while self._untried and self._trial is None:
            waiting = {request: self._tokens(request) for request in self._untried.pop() if request in live}
            if waiting:
                self._trial = _Trial(waiting)
        for request in live:
            if self._trial is not None and request not in self._trial.waiting:
                self._holds.hold(request, TRIAL)
            else:
                self._holds.resume(request, TRIAL)

    def _tokens(self, request_id: str) -> int:
        """Tokens of a request's sequences in all; -1 when it has ended."""
        sequences = self._scheduler.sequences_of(request_id)
        return sum(len(seq.tokens) for seq in sequences) if sequences else -1
