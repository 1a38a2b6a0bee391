"""A fault under load: what every client got and when, what /health and /ready said, and that all is well after it."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.server.live import LiveServer
from tests.server.load import EMBEDDINGS, Answer, ask, client_of
from tests.server.test_resilience import ask_all, mixed

LOAD = [*mixed(10, 24), (EMBEDDINGS, {"input": ["one text", "and another"]}), (EMBEDDINGS, {"input": "a third"})]
"""With four rows, some of these run and some wait."""
NEWCOMERS = [LOAD[number] for number in (0, 1, 3, 9, 10)]
"""Streamed and whole, conversations, texts and vectors."""
_PROBES = ("/health", "/ready")
_LOOK_EVERY = 0.2
_LONGEST = 240.0
"""Seconds after which something hangs."""
UNAVAILABLE = "service_unavailable"


@dataclass(frozen=True)
class Change:
    """A probe's answer that is not what it was before."""

    seconds: float
    """After the fault."""
    path: str
    status: int
    """0 where it did not answer."""
    reason: str


@dataclass
class Outcome:
    """What one client got."""

    was: str
    """Whether its request was running, waiting, still to come or over when the fault came."""
    answer: Answer
    seconds: float
    """After the fault."""
    expected: Answer

    @property
    def is_whole(self) -> bool:
        return self.answer.is_done and self.answer.error is None and is_same(self.answer, self.expected)

    @property
    def told(self) -> str:
        """In a word."""
        if self.is_whole:
            return "finished"
        if not self.is_refused:
            return "neither finished nor refused"
        return "ended by an event" if self.answer.status == 200 else "503"

    @property
    def is_refused(self) -> bool:
        """Ended by an outage, after a part of its text or none; said with the time to come back, where headers can."""
        answer, error = self.answer, self.answer.error or {"code": None, "message": ""}
        if error["code"] != UNAVAILABLE or "try again in about" not in error["message"]:
            return False
        if not all(self.expected.texts[index].startswith(text) for index, text in answer.texts.items()):
            return False
        return answer.status == 200 or (answer.status == 503 and int(answer.retry_after or 0) >= 1)


@dataclass
class Story:
    """One fault from beginning to end."""

    outcomes: list[Outcome] = field(default_factory=list)
    newcomers: list[Answer] = field(default_factory=list)
    """What requests got that came after all others had ended, before the cause went."""
    changes: list[Change] = field(default_factory=list)
    cured: float = 0.0
    """Seconds after the fault at which the cause went."""
    recovered: float = 0.0
    """Seconds after the fault at which both probes were content and every engine was ready."""

    def of(self, path: str) -> list[int]:
        """The statuses that a probe went through."""
        return [change.status for change in self.changes if change.path == path]

    def when(self, path: str, status: int) -> float | None:
        return next((each.seconds for each in self.changes if (each.path, each.status) == (path, status)), None)

    def reason(self) -> str:
        """What /health said was wrong, last."""
        return next(each.reason for each in reversed(self.changes) if (each.path, each.status) == ("/health", 503))

    def figures(self, name: str) -> str:
        """In one line."""
        parts = [name]
        for was in ("running", "waiting"):
            those = [each for each in self.outcomes if each.was == was]
            got = Counter(each.told for each in those)
            told = ", ".join(f"{count} {what}" for what, count in got.items())
            parts.append(f"{was}: {told} by {max((each.seconds for each in those), default=0):.1f} s")
        parts.extend(f"{path} {self._told(path)}" for path in _PROBES)
        after = "" if not self.cured else f", {self.recovered - self.cured:.1f} s after the cause went"
        return " | ".join([*parts, f"all well at {self.recovered:.1f} s{after}"])

    def _told(self, path: str) -> str:
        first, *later = [each for each in self.changes if each.path == path]
        return ", ".join([f"{first.status}", *(f"{each.status} at {each.seconds:.1f} s" for each in later)])


def is_same(answer: Answer, expected: Answer) -> bool:
    if len(answer.vectors) != len(expected.vectors):
        return False
    if any(one != pytest.approx(other, abs=1e-2) for one, other in zip(answer.vectors, expected.vectors, strict=True)):
        return False
    return (answer.texts, answer.reasons, answer.tokens) == (expected.texts, expected.reasons, expected.tokens)


def endure(
    server: LiveServer,
    expected: list[Answer],
    cause: Callable[[], object],
    cure: Callable[[], object] | None = None,
) -> Story:
    """Load a server, cause a fault, let every client come to its end, remove the cause, and wait until all is well."""
    return asyncio.run(_Scene(server, expected).play(cause, cure))


class _Scene:
    def __init__(self, server: LiveServer, expected: list[Answer]) -> None:
        self._server = server
        self._expected = expected
        self._story = Story()
        self._began = time.monotonic()
        self._last: dict[str, int] = {}

    async def play(self, cause: Callable[[], object], cure: Callable[[], object] | None) -> Story:
        async with asyncio.timeout(_LONGEST):
            clients = [asyncio.create_task(self._client(number)) for number in range(len(LOAD))]
            states = await self._until_some_wait()
            watching = asyncio.create_task(self._watch())
            while len(self._last) < len(_PROBES):
                await asyncio.sleep(0.01)
            self._began = time.monotonic()
            await asyncio.to_thread(cause)
            for number, (answer, ended) in enumerate(await asyncio.gather(*clients)):
                after = ended - self._began
                was = states.get(number, "ended" if after < 0 else "coming")
                self._story.outcomes.append(Outcome(was, answer, after, self._expected[number]))
            if cure is not None:
                self._story.newcomers = await ask_all(self._server, NEWCOMERS)
                self._story.cured = self._now()
                await asyncio.to_thread(cure)
            await self._until_well()
            if cure is None:
                self._story.recovered = self._story.changes[-1].seconds
            watching.cancel()
        return self._story

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _client(self, number: int) -> tuple[Answer, float]:
        path, body = LOAD[number]
        async with client_of(self._server.url, self._server.headers | {"x-request-id": f"client-{number}"}) as client:
            answer = await ask(client, path, body)
        return answer, time.monotonic()

    async def _until_some_wait(self) -> dict[int, str]:
        """What each client's request does once some run and others wait."""
        async with client_of(self._server.url, self._server.headers) as client:
            while True:
                requests: list[dict[str, Any]] = (await client.get("/stats")).json()["requests"]
                states = {int(each["id"].split("-")[1]): each["status"] for each in requests}
                count = Counter(states.values())
                begun = [each for each in requests if each["output_tokens"] >= 3]
                if len(begun) >= 2 and count["waiting"] >= 3:
                    return states
                await asyncio.sleep(0.02)

    async def _watch(self) -> None:
        async with httpx.AsyncClient(base_url=self._server.url, timeout=20.0) as client:
            while True:
                for path in _PROBES:
                    try:
                        answer = await client.get(path)
                        status, told = answer.status_code, answer.json()
                    except httpx.TransportError as error:
                        status, told = 0, {"reason": repr(error)}
                    if self._last.get(path) != status:
                        seconds = self._now() if path in self._last else 0.0
                        self._last[path] = status
                        self._story.changes.append(Change(seconds, path, status, told.get("reason", "")))
                await asyncio.sleep(_LOOK_EVERY)

    async def _until_well(self) -> None:
        """Both probes are content, every engine is ready, and requests are served as before the fault."""
        async with client_of(self._server.url, self._server.headers) as client:
            # every question is a connection of its own, so that each of several fronts is asked
            while set(self._last.values()) != {200} or not all([await _are_all_ready(client) for _ in range(8)]):
                await asyncio.sleep(0.05)
        self._story.recovered = self._now()
        for (path, body), answer in zip(NEWCOMERS, await ask_all(self._server, NEWCOMERS), strict=True):
            assert is_same(answer, self._expected[LOAD.index((path, body))])


async def _are_all_ready(client: httpx.AsyncClient) -> bool:
    return {engine["state"] for engine in (await client.get("/stats")).json()["engines"]} == {"ready"}
