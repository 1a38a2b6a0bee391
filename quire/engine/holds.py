"""Holds: requests that may not run for the moment, each with its reasons; it runs again when no reason is left."""

from quire.scheduler.base import StepScheduler


class Holds:
    """The held requests of one scheduler."""

    def __init__(self, scheduler: StepScheduler) -> None:
        self._scheduler = scheduler
        self._reasons: dict[str, set[str]] = {}

    def hold(self, request_id: str, reason: str) -> None:
        """Leave a request out of every step; one that has ended is left as it is."""
        if self._scheduler.sequences_of(request_id):
            self._reasons.setdefault(request_id, set()).add(reason)
            self._scheduler.hold(request_id)

    def resume(self, request_id: str, reason: str) -> None:
        """A reason is gone."""
        reasons = self._reasons.get(request_id)
        if reasons is None:
            return
        reasons.discard(reason)
        if not reasons:
            del self._reasons[request_id]
            self._scheduler.resume(request_id)

    def forget(self, request_id: str) -> None:
        """A request has ended."""
        self._reasons.pop(request_id, None)
