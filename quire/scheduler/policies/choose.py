"""The policies by name; a plugin adds one by an entry point of `quire.schedulers`."""

from typing import Any

from quire.core.errors import PluginError
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
    group="quire.schedulers",
)


def make_policy(name: str, options: dict[str, Any]) -> Policy:
    """The policy called `name`, with the options it takes."""
    policy: Any = POLICIES.get(name)
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise PluginError(f"the scheduling policy {name!r} is {policy!r}, and must be a subclass of Policy.")
    made: Policy = policy(**options)
    return made
