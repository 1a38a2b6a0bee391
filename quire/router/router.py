"""Router: members, those who look after them, and the way through; everything but HTTP to clients."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from quire.config.router import RouterConfig
from quire.core.errors import ConfigError
from quire.core.http_connection import Headers
from quire.observe.router_metrics import RouterMetrics
from quire.router.health import Health
from quire.router.http.address import member_address
from quire.router.http.answer import MemberLost
from quire.router.member import Member
from quire.router.members import Members
from quire.router.relay import Relay
from quire.router.sources.dns import DnsSource
from quire.router.sources.file import FileSource
from quire.router.sources.kubernetes import KubernetesSource
from quire.router.sources.source import Source, SourceFailed, apply, follow
from quire.router.turns import Turns

_MOST_HELD = 10_000
"""Stored things whose member is remembered; any other is asked for."""
_LONGEST = 16 * 2**20
_PATIENCE = 10.0


class Router:
    """Lives on the event loop."""

    def __init__(self, config: RouterConfig, metrics: RouterMetrics, sources: Sequence[Source] = ()) -> None:
        """`sources` are asked beside those of the settings. Raises ConfigError for members that are none."""
        self.config = config
        self.members = Members(config)
        self.headers: Headers = []
        """What every request to a member carries."""
        if config.member_key is not None:
            self.headers.append((b"authorization", b"Bearer " + config.member_key.encode()))
        devices = [[member_address(url).url for url in group] for group in config.devices()]
        turns = Turns(devices, self.members, self.headers, config.shared_sleep_level)
        self.relay = Relay(self.members, metrics, config.outage_timeout, turns)
        for url in config.listed():
            self.members.add(url, "given")
        self._sources = [*sources, *_sources(config)]
        if not self._sources and not len(self.members) and config.api_key is None and config.keys is None:
            raise ConfigError(
                "the router has no members and no way to get any; name some with --member http://host:8000, "
                "--members-file, --members-dns or --members-kubernetes, or give it a key for its admin API."
            )
        self._tasks: list[asyncio.Task[None]] = []
        self._holders: OrderedDict[str, Member] = OrderedDict()

    async def start(self) -> None:
        """Begin to look after members; what the sources name first is known on return."""
        for source in self._sources:
            try:
                found = await source.look()
            except SourceFailed as error:
                if isinstance(source, FileSource):
                    raise ConfigError(f"--members-file {source.name}: {error}") from None
                found = None
            if found is not None:
                apply(found, source.name, self.members)
        health = Health(self.members, self.headers, self.config.health_interval, self.config.health_timeout)
        self._tasks = [asyncio.create_task(health.keep())]
        self._tasks += [asyncio.create_task(follow(source, self.members)) for source in self._sources]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self.members:
            member.client.close("the router ends")

    # -- what members have -------------------------------------------------------------------------------------

    async def ask_all(self, target: str, headers: Headers) -> list[tuple[Member, int, Any]]:
        """What every member that answers says to a GET: its status and its JSON, None where that is none."""
        members = [each for each in self.members if each.state in ("ready", "busy")]
        found = await asyncio.gather(*(self._get(each, target, headers) for each in members))
        return [(member, *said) for member, said in zip(members, found, strict=True) if said is not None]

    async def holder(self, identity: str, target: str, headers: Headers) -> Member | None:
        """The member that has a stored thing, which is at `target` there; None: nobody has it."""
        known = self._holders.get(identity)
        if known is not None and known.state in ("ready", "busy") and self.members.get(str(known.number)) is known:
            return known
        for member, status, _ in await self.ask_all(target, headers):
            if status == 200:
                self.remember(identity, member)
                return member
        return None

    def remember(self, identity: str, member: Member) -> None:
        """A member has stored something."""
        self._holders[identity] = member
        self._holders.move_to_end(identity)
        while len(self._holders) > _MOST_HELD:
            self._holders.popitem(last=False)

    async def _get(self, member: Member, target: str, headers: Headers) -> tuple[int, Any] | None:
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await member.client.ask("GET", target, headers)
                try:
                    said = await answer.whole(_LONGEST)
                finally:
                    answer.close()
        except (TimeoutError, MemberLost):
            return None
        try:
            return answer.status, msgspec.json.decode(said)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return answer.status, None


def _sources(config: RouterConfig) -> list[Source]:
    sources: list[Source] = []
    if config.members_file is not None:
        sources.append(FileSource(Path(config.members_file).expanduser()))
    if config.members_dns is not None:
        sources.append(DnsSource(config.members_dns))
    if config.members_kubernetes is not None:
        sources.append(KubernetesSource(config.members_kubernetes))
    return sources
