"""Quarantine: requests with which engines are lost again and again run alone, until one proves to be the cause."""

from collections import deque

from quire.serving.journal import Entry

SUSPECT_AFTER = 3
"""Engines lost with a request before it got another token."""


class Quarantine:
    """While it is on, one suspect runs at a time and everyone else waits."""

    def __init__(self) -> None:
        self._suspects: deque[Entry] = deque()
        self._alone: Entry | None = None

    @property
    def is_on(self) -> bool:
        return self._alone is not None

    def keeps_waiting(self, entry: Entry) -> bool:
        """Whether a request must not be given to an engine now."""
        return self._alone is not None and entry is not self._alone

    def cleared(self) -> bool:
        """Whether the one that runs alone got a token or ended; then the next one may run, or everyone."""
        if self._alone is None or (self._alone.losses and not self._alone.is_over):
            return False
        self._alone = None
        self._next()
        return True

    def engine_lost(self, orphans: list[Entry]) -> Entry | None:
        """Returns the request that is proven to be the cause: the one that was alone with the engine."""
        culprit: Entry | None = None
        if self._alone is not None and self._alone in orphans:
            culprit, self._alone = self._alone, None
        self._suspects.extend(entry for entry in orphans if entry.losses == SUSPECT_AFTER and entry is not culprit)
        if self._alone is None:
            self._next()
        return culprit

    def _next(self) -> None:
        while self._suspects and self._alone is None:
            suspect = self._suspects.popleft()
            if suspect.losses and not suspect.is_over:
                self._alone = suspect
