"""History: the last minutes of a server's figures, a sample a second, so that the console's charts are full at once.

Memory is fixed. A front alone keeps its own; of several fronts the hub keeps it, and it outlives any of them.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from quire.core.stats import EngineStats

PERIOD = 1.0
"""Seconds between two samples."""
SPAN = 900
"""Seconds that are kept."""


class EngineLoad(msgspec.Struct, frozen=True, array_like=True):
    """What all engines together hold now."""

    running: int = 0
    waiting: int = 0
    num_blocks: int = 0
    used_blocks: int = 0
    cached_blocks: int = 0
    adapters: int = 0
    waiting_adapters: int = 0


def load_of(engines: Iterable[EngineStats]) -> EngineLoad:
    every = list(engines)
    return EngineLoad(*(sum(getattr(each, name) for each in every) for name in EngineLoad.__struct_fields__))


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One moment; None is what nothing was measured of."""

    time: float
    """On the monotonic clock, which all processes of a host share."""
    generation_tokens_per_second: float
    prompt_tokens_per_second: float
    ttft_p50: float | None
    ttft_p95: float | None
    itl_p50: float | None
    itl_p95: float | None
    running: int
    waiting: int
    kv_used: float | None
    """Share of the KV blocks; None before an engine has told how many there are."""
    kv_cached: float | None
    drafts_per_second: float
    draft_tokens_per_second: float
    accepted_tokens_per_second: float
    accepted_share: float | None
    """Of drafted tokens; None where none were verified."""
    mean_accepted_length: float | None
    adapters_on_device: int
    adapters_waiting: int
    adapter_hits_per_second: float
    adapter_loads_per_second: float


COLUMNS = Sample.__struct_fields__[1:]


def sample_of(moment: float, rates: dict[str, Any], load: EngineLoad) -> Sample:
    """`rates` as Metrics.snapshot gives them."""
    ttft, itl, blocks = rates["ttft_seconds"], rates["itl_seconds"], load.num_blocks
    engines = rates["engines"]
    return Sample(
        moment,
        rates["generation_tokens_per_second"],
        rates["prompt_tokens_per_second"],
        ttft["p50"],
        ttft["p95"],
        itl["p50"],
        itl["p95"],
        load.running,
        load.waiting,
        load.used_blocks / blocks if blocks else None,
        load.cached_blocks / blocks if blocks else None,
        engines["drafts_per_second"],
        engines["draft_tokens_per_second"],
        engines["accepted_tokens_per_second"],
        engines["accepted_share"],
        engines["mean_accepted_length"],
        load.adapters,
        load.waiting_adapters,
        engines["adapter_hits_per_second"],
        engines["adapter_loads_per_second"],
    )


class History:
    """A ring of samples, oldest first."""

    def __init__(self, look: Callable[[float], Sample], clock: Callable[[], float] = time.monotonic) -> None:
        """`look` makes the sample of a moment."""
        self._look = look
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=int(SPAN / PERIOD))

    @property
    def samples(self) -> list[Sample]:
        return list(self._samples)

    def sample(self) -> None:
        self._samples.append(self._look(self._clock()))

    async def keep(self) -> None:
        """Sample until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(PERIOD)


def columns_of(samples: Iterable[Sample], now: float) -> dict[str, list[float | None]]:
    """As /stats/history shows them: a list a figure, to four digits, and the age of each sample in seconds."""
    every = list(samples)
    shown: dict[str, list[float | None]] = {"age_seconds": [round(now - each.time, 2) for each in every]}
    for name in COLUMNS:
        shown[name] = [_short(getattr(each, name)) for each in every]
    return shown


def _short(value: float | None) -> float | None:
    return float(f"{value:.4g}") if isinstance(value, float) else value
