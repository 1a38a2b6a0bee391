"""Health: asks members again and again whether they take work, and gives up those that make no progress.

A member that accepts connections and says nothing is as lost as one that is gone. One that is only slow to answer a
probe, and meanwhile sends tokens, is not.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any

import msgspec

from quire.core.errors import QuireError
from quire.core.http_connection import Headers
from quire.protocol.journal import JOURNAL_HEADER, JOURNAL_VERSION
from quire.router.http.answer import Answer, MemberLost
from quire.router.member import Member
from quire.router.members import Members

_JOURNAL = JOURNAL_HEADER.encode()
_READY = ("/ready", "/health", "/v1/models")
"""The first of these that a server has says whether it takes work."""
_MODELS_EVERY = 10.0
_SILENCES = 2
"""Probes in a row without an answer before a member is lost; a refused connection is enough by itself."""
_LONGEST = 4 * 2**20


class _Card(msgspec.Struct):
    id: str
    parent: str | None = None


class _Cards(msgspec.Struct):
    data: list[_Card]


_READ_CARDS = msgspec.json.Decoder(_Cards)


class Health:
    """Watches all members there are."""

    def __init__(self, members: Members, headers: Headers, interval: float, timeout: float) -> None:
        """`headers` carry the key that members want."""
        self._members = members
        self._headers = headers
        self._interval = interval
        self._timeout = timeout
        self._watching: dict[Member, asyncio.Task[None]] = {}

    async def keep(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._follow(set(self._members))
                await asyncio.sleep(self._interval / 4)
        finally:
            for task in self._watching.values():
                task.cancel()

    def _follow(self, now: set[Member]) -> None:
        for member in now - self._watching.keys():
            self._watching[member] = asyncio.create_task(self._watch(member))
        for member in self._watching.keys() - now:
            self._watching.pop(member).cancel()

    async def _watch(self, member: Member) -> None:
        silences, models_at, path = 0, 0.0, 0
        while True:
            began = time.monotonic()
            try:
                answer, said = await self._get(member, _READY[path])
                silences = 0
                if answer.status == 404 and path + 1 < len(_READY):
                    path += 1
                    continue
                self._judge(member, answer, said)
                if member.state == "ready" and began - models_at > _MODELS_EVERY:
                    await self._learn_models(member)
                    models_at = began
            except (TimeoutError, MemberLost) as error:
                is_gone = isinstance(error, MemberLost) and not error.may_have_begun
                if member.client.heard > began:
                    silences = 0  # it is busy with what matters more
                else:
                    silences += 1
                if silences and (is_gone or silences >= _SILENCES or member.state == "unknown"):
                    why = str(error) or f"it did not answer within {self._timeout:g} s, {silences} times"
                    self._members.lost(member, why)
            await asyncio.sleep(self._interval)

    def _judge(self, member: Member, answer: Answer, said: bytes) -> None:
        member.is_quire = answer.header(_JOURNAL) == JOURNAL_VERSION.encode()
        if answer.status < 400 or answer.status == 404:
            changed = member.become("ready")
        elif answer.status in (401, 403):
            changed = member.become("busy", "it wants a key; give --member-key")
        elif answer.status == 421:
            changed = member.become("busy", "it does not answer for this host name; see its --allowed-hosts")
        else:
            changed = member.become("busy", _words(said) or f"it answers {answer.status}")
        if changed:
            self._members.changed()

    async def _learn_models(self, member: Member) -> None:
        answer, said = await self._get(member, "/v1/models")
        if answer.status == 200:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                cards = _READ_CARDS.decode(said).data
                member.models = frozenset(card.id for card in cards)
                member.adapters = frozenset(card.id for card in cards if card.parent)

    async def _get(self, member: Member, path: str) -> tuple[Answer, bytes]:
        async with asyncio.timeout(self._timeout):
            answer = await member.client.ask("GET", path, self._headers)
            try:
                return answer, await answer.whole(_LONGEST)
            finally:
                answer.close()


def _words(said: bytes) -> str:
    """Why a member takes no work, where it says so."""
    with suppress(msgspec.DecodeError, QuireError, UnicodeDecodeError):
        told: Any = msgspec.json.decode(said)
        if isinstance(told, dict):
            error = told.get("error")
            words = error.get("message") if isinstance(error, dict) else told.get("reason") or told.get("status")
            return str(words)[:200] if words else ""
    return ""
