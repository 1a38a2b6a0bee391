"""Bucket: an allowance that refills evenly, at so many a minute. Knows no clock: every call says what time it is."""

_SECONDS = 60.0


class Bucket:
    """Holds a minute's allowance at most, and may be overdrawn: what is taken too much is waited for later."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        """May be changed at any time: what has been used stays used."""
        self.used = 0.0
        """What has not been refilled yet, at `then`."""
        self.then = now

    def wait_for(self, amount: float, now: float) -> float:
        """Seconds until `amount` is there; more than the bucket can hold is there when it is full."""
        missing = min(amount, self.per_minute) - self.level(now)
        return max(0.0, missing) * _SECONDS / self.per_minute

    def take(self, amount: float, now: float) -> None:
        self._refill(now)
        self.used += amount

    def level(self, now: float) -> float:
        """What is there; below 0 where more was taken than there was."""
        self._refill(now)
        return self.per_minute - self.used

    def seconds_to_full(self, now: float) -> float:
        return self.wait_for(self.per_minute, now)

    def _refill(self, now: float) -> None:
        self.used = max(0.0, self.used - max(0.0, now - self.then) * self.per_minute / _SECONDS)
        self.then = max(self.then, now)
