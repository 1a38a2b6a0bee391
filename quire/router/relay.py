"""Relay: takes a request to a member and its answer back, and on to another member where the first one fails.

What was sent to a client is never sent again, and never taken back: an answer that has begun goes on from the tokens
that its client has. Whatever a member says before that, another one may still be asked.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from typing import Protocol

from quire.core.errors import RequestFailed
from quire.core.http_connection import Headers
from quire.protocol.journal import (
    JOURNAL_HEADER,
    JOURNAL_VERSION,
    RESUME_HEADER,
    WHOLE,
    BrokenFrame,
    FrameReader,
    Note,
    encode_resumption,
)
from quire.router.answer_so_far import AnswerSoFar
from quire.router.http.answer import Answer, MemberLost
from quire.router.member import Member, Work
from quire.router.members import Members
from quire.router.prefix import Prefix
from quire.router.turns import Turns

_JOURNAL, _RESUME = JOURNAL_HEADER.encode(), RESUME_HEADER.encode()
_ELSEWHERE = frozenset((429, 502, 503, 504))
"""What another member may well answer otherwise."""
_LONGEST_BUFFERED = 8 * 2**20
"""Bytes of an answer that are read to the end before any of it is sent, so that another member can be asked."""
_MOST_LOSSES = 3
"""Members that may be lost in a row with a request before it is taken for the cause."""
_PAUSE = 0.25
_log = logging.getLogger(__name__)


class AnswerBroken(RequestFailed):
    """An answer of which a client has a part cannot go on."""


class RelayMetrics(Protocol):
    """What is told about requests."""

    def relayed(self, member: int, seconds: float) -> None:
        """A member began to answer, so long after the request had come."""

    def retried(self, member: int) -> None:
        """A member failed before anything of its answer was sent."""

    def resumed(self, member: int) -> None:
        """A member was lost in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client wants."""

    method: str
    target: str
    """Path and query, as they came."""
    headers: Headers
    body: bytes | None
    prefix: Prefix = field(default_factory=Prefix)
    is_repeatable: bool = True
    """Whether it does no harm to ask twice."""
    deadline: float | None = None
    """Seconds that it may take."""
    member: Member | None = None
    """The only one that can answer."""


@dataclass(slots=True)
class Relayed:
    """What a client gets: a body, or pieces of one."""

    status: int
    headers: Headers
    member: Member
    body: bytes = b""
    pieces: AsyncGenerator[bytes] | None = None
    so_far: AnswerSoFar | None = None
    """What is known of its tokens; complete when the answer is."""


class Relay:
    """Lives on the event loop."""

    def __init__(self, members: Members, metrics: RelayMetrics, outage_timeout: float, turns: Turns) -> None:
        self._members = members
        self._metrics = metrics
        self._outage_timeout = outage_timeout
        self._turns = turns

    async def relay(self, asked: Asked) -> Relayed:
        """Raises Unavailable where no member takes it, RequestFailed where it cannot be completed."""
        return await _Trip(asked, self._members, self._metrics, self._outage_timeout, self._turns).start()


class _Trip:
    """One request from its first member to its last."""

    def __init__(
        self, asked: Asked, members: Members, metrics: RelayMetrics, outage_timeout: float, turns: Turns
    ) -> None:
        self._asked = asked
        self._turns = turns
        self._members = members
        self._metrics = metrics
        self._outage_timeout = outage_timeout
        self._arrived = time.monotonic()
        self._so_far = AnswerSoFar()
        self._has_sent = False
        """Whether the client has anything of the answer."""
        self._avoid: set[Member] = set()
        self._losses = 0
        self._deadline = asyncio.get_running_loop().time() + outage_timeout
        self._first: Member | None = None
        self._member: Member | None = None
        self._answer: Answer | None = None
        self._work: Work | None = None
        self._held = ExitStack()

    async def start(self) -> Relayed:
        try:
            while True:
                answer, member = await self._ask()
                try:
                    relayed = await self._begin(answer, member)
                except (MemberLost, BrokenFrame) as lost:
                    self._lost(lost)
                    continue
                if relayed.pieces is None:
                    self._leave()
                return relayed
        except BaseException:
            self._leave()
            raise

    # -- to a member -------------------------------------------------------------------------------------------

    async def _ask(self) -> tuple[Answer, Member]:
        """The next member's answer, as far as its headers."""
        while True:
            member = self._asked.member or await self._choose()
            self._leave()
            self._member = member
            self._work = self._held.enter_context(member.working(self._asked.prefix.tokens + self._so_far.num_tokens))
            try:
                if self._asked.body is not None:
                    await self._turns.take(member, self._held, self._deadline)
                answer = await self._send(member)
            except MemberLost as lost:
                if not lost.may_have_begun and member.state != "lost":
                    self._members.lost(member, str(lost))
                self._lost(lost)
                continue
            self._answer = answer
            if answer.status in _ELSEWHERE and await self._goes_elsewhere(answer, member):
                continue
            if answer.status >= 500:
                member.breaker.failed()
            else:
                member.breaker.succeeded()
                member.answered += 1
            if self._first is None:
                self._first = member
                self._metrics.relayed(member.number, time.monotonic() - self._arrived)
            return answer, member

    async def _choose(self) -> Member:
        like = self._first if self._so_far.identity is not None else None
        return await self._members.choose(self._asked.prefix, self._avoid, self._deadline, like)

    async def _send(self, member: Member) -> Answer:
        headers, body = list(self._asked.headers), self._asked.body
        if self._asked.deadline is not None:
            left = max(0.001, self._asked.deadline - (time.monotonic() - self._arrived))
            headers.append((b"x-request-deadline", b"%.3f" % left))
        if body is not None:
            headers.append((_JOURNAL, JOURNAL_VERSION.encode()))
            resumption = self._so_far.resumption() if self._has_sent or self._so_far.num_tokens else None
            if resumption is not None:
                record = encode_resumption(resumption)
                headers.append((_RESUME, b"%d" % len(record)))
                body = record + body
        return await member.client.ask(self._asked.method, self._asked.target, headers, body)

    async def _goes_elsewhere(self, answer: Answer, member: Member) -> bool:
        """Whether another member, or the same one later, is asked instead of passing on what this one says."""
        if self._asked.member is not None:
            return False
        self._avoid.add(member)
        if self._members.candidates(self._asked.prefix.model, self._avoid):
            answer.close()
            self._metrics.retried(member.number)
            if answer.status == 503:
                member.become("busy", "it takes no work")  # until it is asked how it is
            return True
        now = asyncio.get_running_loop().time()
        must_go_on = self._so_far.identity is not None
        if (answer.status == 503 or must_go_on) and now < self._deadline:
            answer.close()
            self._avoid.clear()
            await asyncio.sleep(_PAUSE)
            return True
        return False

    def _lost(self, lost: Exception) -> None:
        """The member is of no use to this request; raises RequestFailed where no other can be."""
        member = self._member
        assert member is not None
        member.breaker.failed()
        self._avoid.add(member)
        began = not isinstance(lost, MemberLost) or lost.may_have_begun
        self._losses += began
        cannot_go_on = self._has_sent and self._so_far.identity is None
        if cannot_go_on or self._asked.member is not None or (began and not self._asked.is_repeatable):
            kind = AnswerBroken if self._has_sent else RequestFailed
            raise kind(f"the instance {member.address.url} was lost with this request ({lost}); try again")
        if self._losses >= _MOST_LOSSES:
            raise RequestFailed(f"{_MOST_LOSSES} instances were lost with this request, the last one thus: {lost}")
        (self._metrics.resumed if self._has_sent else self._metrics.retried)(member.number)
        self._deadline = asyncio.get_running_loop().time() + self._outage_timeout

    def _leave(self) -> None:
        """Let go of the member."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        self._held.close()

    # -- back to the client ------------------------------------------------------------------------------------

    async def _begin(self, answer: Answer, member: Member) -> Relayed:
        """An answer as far as nothing of it need be taken back. Raises MemberLost."""
        kind = answer.header(_JOURNAL)
        if kind == WHOLE.encode():
            return await self._whole(answer, member)
        if kind is not None:
            return Relayed(answer.status, answer.headers, member, pieces=self._framed(), so_far=self._so_far)
        length = answer.header(b"content-length")
        if length is not None and length.isdigit() and int(length) <= _LONGEST_BUFFERED:
            return Relayed(answer.status, answer.headers, member, body=await answer.whole(_LONGEST_BUFFERED))
        return Relayed(answer.status, answer.headers, member, pieces=self._plain(answer))

    async def _whole(self, answer: Answer, member: Member) -> Relayed:
        body, last = b"", Note()
        async with aclosing(self._frames(answer)) as frames:
            async for notes, payload in frames:
                self._note(notes)
                last, body = notes[-1], payload
        headers = [*answer.headers, *((name.encode(), value.encode()) for name, value in last.headers)]
        return Relayed(last.status, headers, member, body=body, so_far=self._so_far)

    async def _framed(self) -> AsyncGenerator[bytes]:
        """What the frames have for the client, from as many members as it takes."""
        try:
            while True:
                assert self._answer is not None
                try:
                    async with aclosing(self._frames(self._answer)) as frames:
                        async for notes, payload in frames:
                            self._note(notes)
                            if payload:
                                self._has_sent = True
                                yield payload
                    return
                except (MemberLost, BrokenFrame) as lost:
                    self._lost(lost)
                answer, member = await self._ask()
                if answer.header(_JOURNAL) is None:
                    said = (await answer.whole(_LONGEST_BUFFERED))[:300].decode(errors="replace")
                    raise AnswerBroken(f"the instance {member.address.url} would not go on with this answer: {said}")
                _log.info("an answer goes on at member %d behind %d tokens", member.number, self._so_far.num_tokens)
        finally:
            self._leave()

    async def _frames(self, answer: Answer) -> AsyncGenerator[tuple[list[Note], bytes]]:
        """Frames up to the last; those that came together are sent together. Raises MemberLost, also where the member
        says that it cannot go on."""
        reader, is_over = FrameReader(), False
        while piece := await answer.read():
            notes, payloads, gives_up = [], [], False
            for note, payload in reader.feed(piece):
                is_over = note.status != 0
                if note.status == 503 and self._asked.member is None:
                    gives_up = True
                    break
                notes.append(note)
                payloads.append(payload)
            if notes:
                yield notes, b"".join(payloads)
            if gives_up:
                raise MemberLost("it cannot go on with the answer")
        if not is_over:
            raise MemberLost("its answer has no end")

    def _note(self, notes: list[Note]) -> None:
        before = self._so_far.num_tokens
        for note in notes:
            self._so_far.take(note)
        if self._so_far.num_tokens > before and self._work is not None:
            self._losses = 0
            self._work.grow(self._so_far.num_tokens - before)

    async def _plain(self, answer: Answer) -> AsyncGenerator[bytes]:
        """An answer that only its member can give."""
        try:
            while True:
                try:
                    piece = await answer.read()
                except MemberLost as lost:
                    self._has_sent = True
                    self._lost(lost)
                    return
                if not piece:
                    return
                self._has_sent = True
                yield piece
        finally:
            self._leave()
