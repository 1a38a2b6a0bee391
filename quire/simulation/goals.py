"""LatencyGoals: how soon an answer must begin and how fast it must go on. Goodput counts the requests that had both."""

from dataclasses import dataclass

from quire.config.bounds import check


@dataclass(frozen=True, slots=True)
class LatencyGoals:
    """In milliseconds, as in `quire bench --goodput`."""

    ttft: float
    """Until the first token."""
    tpot: float
    """A token after it, on average over an answer."""

    def __post_init__(self) -> None:
        for name in ("ttft", "tpot"):
            check(getattr(self, name) > 0, name, getattr(self, name), "more than 0 milliseconds", "give a time")

    def are_met(self, ttft: float, seconds_after: float, num_tokens: int) -> bool:
        """By an answer of so many tokens, of which all but the first came in `seconds_after`."""
        return 1e3 * ttft <= self.ttft and 1e3 * seconds_after <= self.tpot * max(1, num_tokens - 1)
