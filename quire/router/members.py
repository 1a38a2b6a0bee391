"""Members: all instances there are, who of them may get a request, and which one does."""

import asyncio
import logging
from collections.abc import Collection, Iterator

from quire.config.router import RouterConfig
from quire.core.errors import ConfigError, Unavailable
from quire.router.choice import MemberChoice
from quire.router.http.address import member_address
from quire.router.http.client import MemberClient
from quire.router.member import Member, Role
from quire.router.prefix import Prefix

MOST_MEMBERS = 1024
_COME_BACK = 2.0
_log = logging.getLogger(__name__)


class Members:
    """Lives on the event loop."""

    def __init__(self, config: RouterConfig) -> None:
        self._config = config
        self._choice = MemberChoice(config.routing)
        self._members: dict[str, Member] = {}
        self._next = 0
        self._news = asyncio.Event()

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: str) -> Member | None:
        """By its number, or by its address."""
        if name.isdecimal():
            return next((each for each in self._members.values() if each.number == int(name)), None)
        try:
            return self._members.get(member_address(name).url)
        except ConfigError:
            return None

    # -- who there is ------------------------------------------------------------------------------------------

    def add(self, url: str, source: str, role: Role = "both") -> Member:
        """A member that is known already stays as it is, but for its role, and drains no more."""
        address = member_address(url)
        member = self._members.get(address.url)
        if member is None:
            if len(self._members) >= MOST_MEMBERS:
                raise ConfigError(f"there are {MOST_MEMBERS} members, which is all a router takes; remove one first")
            client = MemberClient(address, self._config.connect_timeout, self._config.member_ca_file)
            member = Member(self._next, address, client, source)
            self._next += 1
            self._members[address.url] = member
            _log.info("member %d is %s (%s)", member.number, address.url, source)
        member.role, member.is_draining = role, False
        self.changed()
        return member

    def drain(self, member: Member) -> None:
        """Its source names it no more: give it nothing new."""
        member.is_draining = True
        self.changed()

    def hold_out(self, member: Member, held_out: bool) -> None:
        """Give it nothing new, whatever its source says, or as the source says again."""
        member.is_held_out = held_out
        self.changed()

    def remove(self, member: Member) -> None:
        """Forget it; what it has goes on at another one."""
        self._members.pop(member.address.url, None)
        self._choice.forget(member.number)
        member.become("lost", "it was removed")
        member.client.close("the member was removed")
        _log.info("member %d, %s, is removed", member.number, member.address.url)
        self.changed()

    def lost(self, member: Member, why: str) -> None:
        """It does not answer: what it has goes on at another one, and its cache is taken for gone."""
        if member.become("lost", why):
            member.losses += 1
            _log.error(
                "member %d, %s, is lost (%s); its %d requests go on elsewhere",
                member.number, member.address.url, why, len(member.work),
            )  # fmt: skip
        self._choice.forget(member.number)
        member.client.close(why)

    def changed(self) -> None:
        """Something is known of a member that requests may wait for."""
        self._news.set()
        self._news = asyncio.Event()

    # -- who gets what -----------------------------------------------------------------------------------------

    def candidates(self, model: str | None, avoid: Collection[Member] = (), like: Member | None = None) -> list[Member]:
        """Members that may get a request for a model; those that have it where some do, those that are well where some
        are. With `like` only those that can go on with what that member has begun."""
        able = [each for each in self._members.values() if each.takes_work and each not in avoid]
        if like is not None:
            able = [each for each in able if each.is_quire and each.models == like.models]
        if model is not None:
            able = [each for each in able if model in each.models] or able
        return [each for each in able if each.breaker.allows] or able

    async def choose(
        self, prefix: Prefix, avoid: Collection[Member], deadline: float, like: Member | None = None
    ) -> Member:
        """Wait for a member that may have it until `deadline`, on the loop's clock. Raises Unavailable.

        Those to avoid are asked again rather than none.
        """
        while True:
            found = self.candidates(prefix.model, avoid, like) or self.candidates(prefix.model, like=like)
            if found:
                return self._choice.choose(prefix, found)
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                raise Unavailable(self.outage(), retry_after=_COME_BACK) from None

    def outage(self) -> str:
        """Why nobody takes work."""
        if not self._members:
            return "the router has no members; name some with --member or --members-file"
        said = [f"{each.address.url} {each.why or each.state}" for each in list(self._members.values())[:3]]
        more = f" and {len(self._members) - 3} more" if len(self._members) > 3 else ""
        return f"no member takes work now: {'; '.join(said)}{more}"
