"""Source: who the members are, as a place outside of the router says it: asked again and again."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from quire.core.errors import QuireError
from quire.router.member import Role
from quire.router.members import Members

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Named:
    """A member as a source names it."""

    url: str
    role: Role = "both"
    is_draining: bool = False


class SourceFailed(QuireError):
    """A source does not say who the members are; those it named before stay."""


class Source(Protocol):
    """One place."""

    name: str
    """Of the place, for the log; it marks the members that come from there."""
    every: float
    """Seconds between two looks."""

    async def look(self) -> list[Named] | None:
        """All members now; None: as before. Raises SourceFailed."""


async def follow(source: Source, members: Members) -> None:
    """Keep the members as the source says, until cancelled."""
    last_failure = ""
    while True:
        try:
            found = await source.look()
            last_failure = ""
        except SourceFailed as error:
            found = None
            if str(error) != last_failure:  # a source that stays broken is told of once
                _log.error("%s: %s; the members stay as they are", source.name, error)
            last_failure = str(error)
        if found is not None:
            apply(found, source.name, members)
        await asyncio.sleep(source.every)


def apply(found: list[Named], source: str, members: Members) -> None:
    """Add those that are new; those that are gone drain, and leave when they have nothing left to do."""
    now = {}
    for each in found:
        member = members.get(each.url)
        if member is None or member.source == source:
            is_known = member is not None and member.role == each.role and not member.is_draining
            if not is_known or member is None:
                member = members.add(each.url, source, each.role)
            if each.is_draining:
                members.drain(member)
        now[member] = each
    for member in members:
        if member.source == source and member not in now:
            if not member.is_draining:
                members.drain(member)
            if not member.work or member.state == "lost":
                members.remove(member)
