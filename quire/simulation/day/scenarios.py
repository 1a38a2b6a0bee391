"""Scenarios: days that are worth simulating, with the cluster that they are usually served by."""

from collections.abc import Mapping
from dataclasses import dataclass

from quire.simulation.day.traffic import FASTCHAT, SHAREGPT, Habits
from quire.simulation.limits import ScenarioName


@dataclass(frozen=True, slots=True)
class Scenario:
    """Who asks, and what answers unless something else is asked for."""

    words: str
    num_requests: int
    """In a day, about: every turn of a conversation is one."""
    habits: Habits
    instances: int
    device: str


SCENARIOS: Mapping[ScenarioName, Scenario] = {
    "fastchat-day": Scenario(
        "a day of a chat demo, with the turns and lengths of LMSYS-Chat-1M", 60_000, FASTCHAT, 2, "a10g"
    ),
    "million-users": Scenario(
        "a million people with a conversation each, with ShareGPT's lengths and LMSYS-Chat-1M's turns",
        2_000_000,
        SHAREGPT,
        64,
        "a10g",
    ),
}
CONTEXT = 8192
"""Tokens of a context where nothing else is asked for."""
