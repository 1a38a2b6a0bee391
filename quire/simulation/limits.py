"""Names and bounds that the command line knows before anything is simulated. Imports nothing, so that help is quick."""

from typing import Literal

TimeUnit = Literal["auto", "s", "ms"]
ScenarioName = Literal["fastchat-day", "million-users"]

LONGEST = 1 << 24
"""Tokens of a prompt or an answer; more than any model's context, and few enough to be held."""
MAX_NUMBER = 1 << 30
"""Requests, and ids of shared content, in one simulation."""
WIDEST_BEAM = 64
