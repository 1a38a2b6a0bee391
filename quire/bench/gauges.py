"""What a server says of itself while it is loaded: running and waiting requests, KV use and drafts, from /metrics."""

import asyncio
import math
import re
from collections.abc import Callable

import msgspec

from quire.bench.http.client import Client
from quire.bench.http.connection import BrokenAnswer
from quire.core.draft_counts import DraftCounts

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+(?P<value>\S+)", re.MULTILINE)
_NAMES = {
    "running": ("quire_num_requests_running", "vllm:num_requests_running", "sglang:num_running_reqs",
                "llamacpp:requests_processing"),
    "waiting": ("quire_num_requests_waiting", "vllm:num_requests_waiting", "sglang:num_queue_reqs",
                "llamacpp:requests_deferred"),
    "kv": ("quire_kv_cache_usage_perc", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
           "llamacpp:kv_cache_usage_ratio"),
    "drafts": ("quire_spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts_total"),
    "drafted": ("quire_spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
    "accepted": ("quire_spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"),
}  # fmt: skip


_PATIENCE = 10.0
"""Seconds to wait for an answer: a server may be too busy to give one."""


class GaugePoint(msgspec.Struct, frozen=True):
    """One look at a server; None is what it does not say."""

    time: float
    running: float | None
    waiting: float | None
    kv: float | None
    """Share of the KV cache in use: the fullest of several engines."""
    drafts: int | None = None
    """Times a sequence had drafted tokens verified, since the server's start."""
    drafted: int | None = None
    """Drafted tokens that were verified, since then."""
    accepted: int | None = None
    """Of these, those that were right."""


def read_gauges(page: str, time: float) -> GaugePoint | None:
    """From a page in Prometheus' format; None where it has nothing known."""
    values: dict[str, list[float]] = {}
    for sample in _SAMPLE.finditer(page):
        try:
            value = float(sample["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            values.setdefault(sample["name"], []).append(value)
    found = {what: next((values[name] for name in names if name in values), None) for what, names in _NAMES.items()}
    if all(each is None for each in found.values()):
        return None
    running, waiting, kv = found["running"], found["waiting"], found["kv"]
    return GaugePoint(
        time,
        None if running is None else sum(running),
        None if waiting is None else sum(waiting),
        None if kv is None else max(kv),
        **{
            what: None if (each := found[what]) is None else round(sum(each))
            for what in ("drafts", "drafted", "accepted")
        },
    )


def drafts_between(first: GaugePoint, last: GaugePoint) -> DraftCounts | None:
    """None where the server has no such counts, or began them anew meanwhile."""
    before, after = _drafts_at(first), _drafts_at(last)
    if before is None or after is None or after.tokens < before.tokens:
        return None
    return after - before


def _drafts_at(look: GaugePoint) -> DraftCounts | None:
    if look.drafts is None or look.drafted is None or look.accepted is None:
        return None
    return DraftCounts(look.drafts, look.drafted, look.accepted)


class Page:
    """A whole answer, for small ones; an AnswerSink."""

    def __init__(self) -> None:
        self.status = 0
        self._pieces: list[bytes] = []

    @property
    def content(self) -> bytes:
        return b"".join(self._pieces)

    def begin(self, status: int, arrived: int) -> None:
        self.status = status

    def body(self, piece: bytes, arrived: int) -> None:
        self._pieces.append(piece)


class GaugeWatch:
    """Looks at a server from just before a run until just after it, so that its counters tell what the run did."""

    def __init__(self, client: Client, now: Callable[[], float], every: float) -> None:
        """`now` is the time within the run, and `every` the seconds between two looks; 0: nobody looks."""
        self._client = client
        self._now = now
        self._every = every
        self._points: list[GaugePoint] = []
        self._looking: asyncio.Task[None] | None = None

    async def before(self) -> None:
        """The first look, at time 0."""
        if self._every:
            await self._look(lambda: 0.0)

    def begin(self) -> None:
        """The run begins: look until `end`, unless it has turned out that there is nothing to see."""
        if self._points:
            self._looking = asyncio.create_task(self._go_on())

    async def end(self) -> list[GaugePoint]:
        """The last look, and what all of them saw."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
            await self._look(self._now)
        return self._points

    async def _go_on(self) -> None:
        seen = True
        while seen:
            await asyncio.sleep(self._every)
            seen = await self._look(self._now)

    async def _look(self, now: Callable[[], float]) -> bool:
        """Whether there was something to see, or may be the next time."""
        page, moment = Page(), now()
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._client.get("/metrics", page)
        except TimeoutError:
            return True
        except (OSError, BrokenAnswer):
            return False
        point = read_gauges(page.content.decode(errors="replace"), moment) if page.status == 200 else None
        if point is not None:
            self._points.append(point)
        return point is not None
