"""Account: what one key may use and what it has used: requests and tokens a minute, requests at once.

Lives on the event loop alone. Where several fronts serve, what was used is in memory they share, and locked for as
long as it is looked at. Tokens are charged when they are known, which is after the work; an account that has overdrawn
its minute waits until it is even again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from quire.core.errors import Overloaded
from quire.server.gate.bucket import Bucket
from quire.server.gate.usage_table import TenantUsage

_ONE_MOMENT = 1.0
"""Seconds to wait for a request of one's own to end; nobody knows when it will."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key may use; None is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit and how much of it is left."""

    limit: int
    remaining: int
    reset: float
    """Seconds until all of it is there again."""


class Account:
    """Whoever has no limits has an account all the same, and never hears of it."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        shared: TenantUsage | None = None,
    ) -> None:
        """`shared` is what the account has used on all fronts; None where there is one front."""
        self.limits = limits or Limits()
        self.running = 0
        """Requests that have entered here and not left."""
        self._clock = clock
        self._shared = shared
        self._requests = self._bucket(self.limits.requests_per_minute, None)
        self._tokens = self._bucket(self.limits.tokens_per_minute, None)

    def enter(self) -> None:
        """Begin a request, or raise Overloaded; one that is refused counts for nothing."""
        with self._usage():
            self._check_concurrency()
            now = self._clock()
            if self._requests is not None:
                self._check(self._requests, 1, now, "requests")
            if self._tokens is not None:
                self._check(self._tokens, 1, now, "tokens")  # in debt: nothing it could ask for would be let in
            if self._requests is not None:
                self._requests.take(1, now)
            self.running += 1

    def leave(self) -> None:
        """End a request that has entered."""
        assert self.running > 0, "left more often than entered"
        with self._usage():
            self.running -= 1

    @contextmanager
    def request(self) -> Iterator[None]:
        """Enter, and leave whatever happens."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    @contextmanager
    def extended(self) -> Iterator[None]:
        """Work that goes on after its request has left: it counts as running, and not as another request."""
        with self._usage():
            self.running += 1
        try:
            yield
        finally:
            self.leave()

    def check_tokens(self, count: int) -> None:
        """Raise Overloaded unless `count` tokens could be used now.

        A request of more tokens than a minute has waits for a whole minute's worth, and so is not shut out for ever.
        """
        if self._tokens is not None:
            with self._usage():
                self._check(self._tokens, count, self._clock(), "tokens")

    def charge(self, count: int) -> None:
        """Take off what a request has used, prompt and answer together."""
        if self._tokens is not None:
            with self._usage():
                self._tokens.take(count, self._clock())

    def change(self, limits: Limits) -> None:
        """Other limits from now on; what was used stays used and what runs goes on."""
        self._requests = self._bucket(limits.requests_per_minute, self._requests)
        self._tokens = self._bucket(limits.tokens_per_minute, self._tokens)
        self.limits = limits

    def quotas(self) -> dict[str, Quota]:
        """What is left, by `requests` and `tokens`; without those that have no limit."""
        named = {"requests": self._requests, "tokens": self._tokens}
        with self._usage():
            now = self._clock()
            return {name: _quota(bucket, now) for name, bucket in named.items() if bucket is not None}

    @contextmanager
    def _usage(self) -> Iterator[None]:
        """Hold what all fronts know of the account; without limits nobody needs to know."""
        shared = self._shared
        if shared is None or self.limits == Limits():
            yield
            return
        buckets = [(index, each) for index, each in enumerate((self._requests, self._tokens)) if each is not None]
        with shared.locked():
            for index, bucket in buckets:
                used, then = shared.bucket(index)
                if then:  # else nobody has used anything yet
                    bucket.used, bucket.then = used, then
            try:
                yield
            finally:
                for index, bucket in buckets:
                    shared.put_bucket(index, bucket.used, bucket.then)
                shared.put_running(self.running)

    def _check_concurrency(self) -> None:
        most = self.limits.concurrency
        if most is None:
            return
        running = self.running if self._shared is None else self._shared.running()
        if running >= most:
            raise Overloaded(
                f"this key has {running} requests running and may have {most} at once; wait for one to end.",
                retry_after=_ONE_MOMENT,
            )

    def _bucket(self, per_minute: int | None, old: Bucket | None) -> Bucket | None:
        if per_minute is None:
            return None
        if old is None:
            return Bucket(per_minute, self._clock())
        old.per_minute = per_minute
        return old

    def _check(self, bucket: Bucket, amount: int, now: float, what: str) -> None:
        wait = bucket.wait_for(amount, now)
        if wait > 0:
            raise Overloaded(
                f"this key may use {bucket.per_minute:,} {what} a minute and has {max(0, int(bucket.level(now))):,} "
                f"left, but {amount:,} are asked for; try again in {wait:.1f} seconds.",
                retry_after=wait,
            )


def _quota(bucket: Bucket, now: float) -> Quota:
    return Quota(bucket.per_minute, max(0, int(bucket.level(now))), bucket.seconds_to_full(now))
