"""Turns: of instances that share a device, one is awake at a time; the others sleep until they are asked for.

So a device serves more models than fit into its memory. Whoever is asked waits until the answers of the one that is
awake have ended; then that one is put to sleep, and the other woken up. A turn lasts a few seconds at least, so that
requests for two models by turns do not spend their time on waking up.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import count

from quire.core.errors import Unavailable
from quire.core.http_connection import Headers
from quire.router.http.answer import MemberLost
from quire.router.member import Member
from quire.router.members import Members

LEAST_TURN = 5.0
"""Seconds in which requests for the instance that is awake go before others that have waited longer."""
_PAUSE = 0.25
_COME_BACK = 5.0
_LONGEST_ANSWER = 2**20


class Turns:
    """Lives on the event loop."""

    def __init__(self, groups: Iterable[Iterable[str]], members: Members, headers: Headers, level: int) -> None:
        """`groups`: addresses of the instances of each device. `headers` carry the key that members want."""
        self._devices = {
            url: device for urls in groups for device in [_Device(list(urls), members, headers, level)] for url in urls
        }

    async def take(self, member: Member, held: ExitStack, deadline: float) -> None:
        """Wait until a member's device is its own, which it is until `held` is closed.

        Raises Unavailable at `deadline`, on the loop's clock, and MemberLost where it does not wake up.
        """
        device = self._devices.get(member.address.url)
        if device is not None:
            await device.enter(member, deadline)
            held.callback(device.leave)


class _Device:
    """One device, and who waits for it."""

    def __init__(self, urls: list[str], members: Members, headers: Headers, level: int) -> None:
        self._urls = urls
        self._members = members
        self._headers = headers
        self._level = level
        self._awake: Member | None = None
        """None: nobody knows who is."""
        self._since = 0.0
        self._num_inside = 0
        self._is_switching = False
        self._tickets = count()
        self._waiting: dict[int, Member] = {}
        """By ticket, the earliest first."""
        self._news = asyncio.Event()

    async def enter(self, member: Member, deadline: float) -> None:
        ticket = next(self._tickets)
        self._waiting[ticket] = member
        try:
            async with asyncio.timeout_at(deadline):
                while not self._may_enter(ticket, member):
                    await self._news.wait()
                if self._awake is not member:
                    await self._switch(member)
        except TimeoutError:
            awake = "another instance" if self._awake is None else self._awake.address.url
            message = f"the device of {member.address.url} is in use by {awake}, with which it takes turns"
            raise Unavailable(message, retry_after=_COME_BACK) from None
        finally:
            del self._waiting[ticket]
            self._tell()
        self._num_inside += 1

    def leave(self) -> None:
        self._num_inside -= 1
        self._tell()

    def _may_enter(self, ticket: int, member: Member) -> bool:
        if self._is_switching:
            return False
        earlier = [other for number, other in self._waiting.items() if number < ticket]
        if self._awake is member:
            is_young = time.monotonic() - self._since < LEAST_TURN
            return is_young or all(other is member for other in earlier)
        return not self._num_inside and not earlier

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _switch(self, member: Member) -> None:
        """Put the others to sleep, and wake it up."""
        self._is_switching = True
        others = [each for each in self._members if each.address.url in self._urls and each is not member]
        if self._awake is not None:
            others = [each for each in others if each is self._awake]
        self._awake = None
        try:
            for other in others:
                await self._sleep(other)
            status = await self._post(member, "/wake_up")
            if status >= 400:
                raise MemberLost(f"it does not wake up (it answers {status})", may_have_begun=False)
            self._awake, self._since = member, time.monotonic()
        finally:
            self._is_switching = False

    async def _sleep(self, other: Member) -> None:
        while True:
            try:
                status = await self._post(other, f"/sleep?level={self._level}")
            except MemberLost:
                return  # what is gone takes no memory
            if status < 400:
                return
            if status != 409:
                raise Unavailable(
                    f"{other.address.url} shares a device and would not sleep (it answers {status}); a quire server "
                    "does, where --member-key is an admin's",
                    retry_after=_COME_BACK,
                )
            await asyncio.sleep(_PAUSE)  # someone else's requests are live there

    async def _post(self, member: Member, target: str) -> int:
        answer = await member.client.ask("POST", target, self._headers, b"")
        try:
            await answer.whole(_LONGEST_ANSWER)
            return answer.status
        finally:
            answer.close()
