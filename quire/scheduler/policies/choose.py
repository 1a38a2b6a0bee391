"""The policies by name."""

from typing import Any

from quire.core.registry import Registry
from quire.scheduler.policies.base import Policy

_HERE = "quire.scheduler.policies"

POLICIES: Registry[Policy] = Registry(
    "scheduling policy",
    {
        "fcfs": f"{_HERE}.fcfs:FirstComeFirstServed",
        "sjf": f"{_HERE}.sjf:ShortestJobFirst",
        "round-robin": f"{_HERE}.round_robin:RoundRobin",
        "priority": f"{_HERE}.priority:Priority",
        "fair": f"{_HERE}.fair:Fair",
    },
)


def make_policy(name: str, options: dict[str, Any]) -> Policy:
    """The policy called `name`, with the options it takes."""
    return POLICIES.get(name)(**options)
