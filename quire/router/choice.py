"""Which of several members gets a request: by cached prefix, by home and by load.

Knows no HTTP and no clock: the simulator chooses among its instances with the very same code.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar

from quire.config.server import RoutingStrategy
from quire.router.prefix import Prefix
from quire.serving.routing import Routing

_SLACK = 1.25
_SLACK_TOKENS = 2048
"""A member's load counts as far as it is above so many times the mean and so much more: small differences must not pull
a conversation from where its prefix is, nor make two routers choose differently."""


class Choosable(Protocol):
    """A member as far as the choice goes."""

    @property
    def number(self) -> int: ...

    @property
    def load(self) -> int:
        """Tokens of the requests that it has."""

    @property
    def adapters(self) -> frozenset[str]: ...

    def weight(self, key: bytes) -> bytes:
        """How much it wants what belongs to `key`."""


M = TypeVar("M", bound=Choosable)


def rendezvous_weight(key: bytes, name: str) -> bytes:
    """The same in every router that knows a member by this name: the highest of all members is a key's home."""
    return blake2b(key + name.encode(), digest_size=8).digest()


class MemberChoice:
    """Remembers what members were given."""

    def __init__(self, strategy: RoutingStrategy) -> None:
        self._strategy: RoutingStrategy = strategy
        self._routing = Routing(strategy)

    def choose(self, prefix: Prefix, members: Sequence[M]) -> M:
        """The one of `members` that gets a request which begins like this."""
        by_number = {each.number: each for each in members}
        is_by_prefix = self._strategy == "prefix"
        home = max(members, key=lambda each: each.weight(prefix.home)) if prefix.home and is_by_prefix else None
        number = self._routing.choose_by(
            lambda: prefix.names,
            list(by_number),
            _Loads(members, spread=is_by_prefix),
            adapter=prefix.model if prefix.model and any(prefix.model in each.adapters for each in members) else None,
            home=None if home is None else (home.number, prefix.home_tokens),
        )
        return by_number[number]

    def forget(self, number: int) -> None:
        """A member's cache is gone."""
        self._routing.forget(number)


class _Loads:
    """What members have to do; `spread`: only as far as it is more than a fair share."""

    def __init__(self, members: Sequence[Choosable], *, spread: bool) -> None:
        self._members = members
        self._spread = spread

    def loads(self) -> Mapping[int, float]:
        loads = {each.number: float(each.load) for each in self._members}
        if not self._spread:
            return loads
        fair = _SLACK * sum(loads.values()) / len(loads) + _SLACK_TOKENS
        if max(loads.values()) <= fair:
            return {}  # as if none had anything to do
        return {number: max(0.0, load - fair) for number, load in loads.items()}
