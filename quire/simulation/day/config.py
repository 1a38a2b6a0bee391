"""Which day to simulate, and on what cluster. Flags of `quire simulate` come from here."""

import math
from dataclasses import dataclass
from pathlib import Path

from quire.config.bounds import check, flag
from quire.core.errors import ConfigError
from quire.simulation.limits import ScenarioName


@dataclass(frozen=True, slots=True)
class ScenarioConfig:
    """A whole day of a cluster, from one change to the next instead of step by step."""

    scenario: ScenarioName | None = None
    """A day to simulate: fastchat-day (60,000 requests) or million-users (2,000,000, on 64 instances). --num-requests,
    --device, --replicas and --trace change it."""
    conversations: Path | None = None
    """Turns and lengths of a scenario from a file: ShareGPT's JSON, or LMSYS-Chat-1M as JSON lines. Unset: random ones
    with published means."""
    prefill_replicas: int = 0
    """Of a scenario's replicas, those that compute prompts for the others (roles)."""
    transfer_bandwidth: float | None = None
    """GB/s at which a replica sends KV to others. Unset: as the device's link between hosts with roles, else
    none is sent."""
    disk_bandwidth: float = 5.0
    """GB/s at which a replica reads prefixes below --kv-disk-path."""

    def __post_init__(self) -> None:
        if self.scenario is None:
            for name in ("conversations", "prefill_replicas", "transfer_bandwidth"):
                if getattr(self, name):
                    raise ConfigError(f"{flag(name)} has no effect without --scenario; give one or leave it out.")
        check(self.prefill_replicas >= 0, "prefill_replicas", self.prefill_replicas, "0 or more", "0 means no roles")
        for name in ("transfer_bandwidth", "disk_bandwidth"):
            value = getattr(self, name)
            ok = value is None or (math.isfinite(value) and value > 0)
            check(ok, name, value, "more than 0 GB/s", "leave it out for the usual")
