"""What a server says of itself while it is loaded: running and waiting requests and KV use, from /metrics."""

import asyncio
import re
from collections.abc import Callable

import msgspec

from quire.bench.http.client import Client
from quire.bench.http.connection import BrokenAnswer

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+(?P<value>\S+)", re.MULTILINE)
_NAMES = {
    "running": ("quire_num_requests_running", "vllm:num_requests_running", "sglang:num_running_reqs",
                "llamacpp:requests_processing"),
    "waiting": ("quire_num_requests_waiting", "vllm:num_requests_waiting", "sglang:num_queue_reqs",
                "llamacpp:requests_deferred"),
    "kv": ("quire_kv_cache_usage_perc", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
           "llamacpp:kv_cache_usage_ratio"),
}  # fmt: skip


class GaugePoint(msgspec.Struct, frozen=True):
    """One look at a server; None is what it does not say."""

    time: float
    running: float | None
    waiting: float | None
    kv: float | None
    """Share of the KV cache in use: the fullest of several engines."""


def read_gauges(page: str, time: float) -> GaugePoint | None:
    """From a page in Prometheus' format; None where it has nothing known."""
    values: dict[str, list[float]] = {}
    for sample in _SAMPLE.finditer(page):
        try:
            values.setdefault(sample["name"], []).append(float(sample["value"]))
        except ValueError:
            continue
    found = {what: next((values[name] for name in names if name in values), None) for what, names in _NAMES.items()}
    if all(each is None for each in found.values()):
        return None
    running, waiting, kv = found["running"], found["waiting"], found["kv"]
    return GaugePoint(
        time,
        None if running is None else sum(running),
        None if waiting is None else sum(waiting),
        None if kv is None else max(kv),
    )


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


async def watch_gauges(client: Client, now: Callable[[], float], every: float) -> list[GaugePoint]:
    """Look until cancelled, or until it turns out that there is nothing to see."""
    points: list[GaugePoint] = []
    try:
        while True:
            page, moment = Page(), now()
            await client.get("/metrics", page)
            text = page.content.decode(errors="replace")
            point = read_gauges(text, moment) if page.status == 200 else None
            if point is None:
                return points
            points.append(point)
            await asyncio.sleep(every)
    except (asyncio.CancelledError, OSError, BrokenAnswer):
        return points
