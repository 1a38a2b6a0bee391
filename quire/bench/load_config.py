"""How a server is loaded: at which rate, or with how many requests at once. Flags of `quire bench serve`."""

import math
from dataclasses import dataclass

from quire.bench.datasets.dataset_config import DatasetConfig
from quire.config.bounds import check
from quire.core.errors import ConfigError
from quire.simulation.limits import MAX_NUMBER


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """How requests are sent."""

    request_rate: float | None = None
    """Requests a second. Unset: all at once, or as fast as --concurrency allows, or a trace's own moments."""
    burstiness: float | None = None
    """Shape of the gaps at a rate: 1 is a Poisson process, less comes in bursts, more is steadier, inf a fixed beat.
    Unset: 1."""
    concurrency: int | None = None
    """Requests under way at most; the next is sent when one ends. Unset: no bound."""
    replay_speed: float | None = None
    """Send as the dataset's moments say, so many times as fast; 1 is as it happened. Unset: 1 for a trace without a
    rate or a concurrency."""
    warmup: int = 1
    """Random requests that are sent before each load, and not counted."""
    fresh_prompts: bool = True
    """Fill random prompts with tokens that no run before had, so that the server's prefix cache does not know them.
    Lengths and moments stay those of the seed."""
    timeout: float = 600.0
    """Seconds after which a request counts as failed."""

    def __post_init__(self) -> None:
        for name in ("request_rate", "replay_speed"):
            value = getattr(self, name)
            ok = value is None or (math.isfinite(value) and value > 0)
            check(ok, name, value, "a number above 0", "leave it out for all at once")
        ok = self.burstiness is None or self.burstiness > 0
        check(ok, "burstiness", self.burstiness, "above 0", "1 is a Poisson process, inf a fixed beat")
        check(self.timeout > 0, "timeout", self.timeout, "seconds above 0", "inf waits for ever")
        check(0 <= self.warmup <= MAX_NUMBER, "warmup", self.warmup, "0 or more requests", "0 is none")
        ok = self.concurrency is None or 1 <= self.concurrency <= MAX_NUMBER
        check(ok, "concurrency", self.concurrency, "1 or more requests", "leave it out for no bound")
        if self.burstiness is not None and self.request_rate is None:
            raise ConfigError("--burstiness has no effect without --request-rate; give both.")
        if self.replay_speed is not None and self.request_rate is not None:
            raise ConfigError("--replay-speed and --request-rate both say when to send; give one of them.")

    def speed_for(self, dataset: DatasetConfig) -> float | None:
        """How fast to replay the dataset's moments; None where they do not count."""
        if self.replay_speed is not None or dataset.dataset != "trace":
            return self.replay_speed
        return 1.0 if self.request_rate is None and self.concurrency is None else None

    def describe(self, dataset: DatasetConfig) -> str:
        """In words, for titles."""
        speed = self.speed_for(dataset)
        if speed is not None:
            how = "as the trace has them" if speed == 1 else f"as the trace has them, {speed:g} × as fast"
        elif self.request_rate is not None:
            how = f"{self.request_rate:g} requests a second"
        else:
            how = "all at once" if self.concurrency is None else ""
        bound = "" if self.concurrency is None else f"{self.concurrency} at a time"
        return ", ".join(part for part in (how, bound) if part)
