"""Member: one instance, what is known of it, and what it has to do for this router."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from quire.core.http_address import HttpAddress
from quire.router.breaker import Breaker
from quire.router.choice import rendezvous_weight
from quire.router.http.client import MemberClient

MemberState = Literal["unknown", "ready", "busy", "lost"]
"""Not heard of yet; takes work; answers, but takes no work now (it starts, drains or sleeps); does not answer."""
Role = Literal["both", "prefill", "decode"]


@dataclass(slots=True, eq=False)
class Work:
    """One request that a member has."""

    member: "Member"
    tokens: int

    def grow(self, tokens: int) -> None:
        """Its answer has so many more."""
        self.tokens += tokens
        self.member.load += tokens


@dataclass(slots=True, eq=False)
class Member:
    """Lives on the event loop."""

    number: int
    address: HttpAddress
    client: MemberClient
    source: str = "given"
    """Who named it: an option, a file, DNS, Kubernetes, or the admin API."""
    role: Role = "both"
    state: MemberState = "unknown"
    why: str = ""
    """What its state comes from, in words."""
    is_draining: bool = False
    """Its source says that nothing new goes to it; what it has is seen through."""
    is_held_out: bool = False
    """An admin says the same."""
    models: frozenset[str] = frozenset()
    """What it calls its models; empty where it has not said."""
    adapters: frozenset[str] = frozenset()
    """Those of them that are adapters of another."""
    is_quire: bool = False
    """Whether it can go on with another's answers."""
    breaker: Breaker = field(default_factory=Breaker)
    losses: int = 0
    answered: int = 0
    since: float = field(default_factory=time.monotonic)
    """When its state last changed."""
    work: set[Work] = field(default_factory=set)
    load: int = 0
    """Tokens of the requests that this router has given it."""

    @property
    def takes_work(self) -> bool:
        return self.state == "ready" and not (self.is_draining or self.is_held_out) and self.role != "prefill"

    def become(self, state: MemberState, why: str = "") -> bool:
        """Note a state; whether it is another than before."""
        changed = state != self.state
        if changed:
            self.since = time.monotonic()
        self.state, self.why = state, why
        return changed

    @contextmanager
    def working(self, tokens: int) -> Iterator[Work]:
        """While it has a request of so many tokens."""
        work = Work(self, 0)
        work.grow(tokens)
        self.work.add(work)
        self.breaker.sending()
        try:
            yield work
        finally:
            self.work.discard(work)
            work.grow(-work.tokens)
            self.breaker.ended()

    def weight(self, key: bytes) -> bytes:
        """How much it wants what belongs to `key`: the same in every router that knows it by this address."""
        return rendezvous_weight(key, self.address.url)
