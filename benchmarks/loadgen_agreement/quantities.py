"""What both load generators measured, brought to the same definitions.

quire bench and guidellm use the same words for different things, so quantities are named here by their formula. All
are per request, from moments that both keep; the run's value is their median unless it says otherwise.

| here | quire bench | guidellm |
|---|---|---|
| first token: first piece − sent | TTFT | TTFT |
| per token after the first: (last − first) / (tokens − 1) | TPOT | ITL |
| mean gap: all time between pieces over all gaps | mean of ITL | mean of ITL, weighted by its tokens |
| per token with the first: (last − sent) / tokens | E2E over tokens | TPOT |
| last token: last piece − sent | E2E | last token iteration − request start |
| rates: over the time from the first sent to the last end | as printed | from its requests' moments; it prints others |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median


class MissingAnswers(RuntimeError):
    """A generator did not get all answers whole: what it measured is of another workload."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request that was answered; times in seconds from its sending."""

    first: float
    last: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Agreed:
    """One run of one generator; times in seconds, rates per second."""

    first_token: float
    per_token: float
    mean_gap: float
    per_token_with_first: float
    last_token: float
    requests: float
    output: float


NAMES = {
    "first_token": ("first token (TTFT)", "ms", 1e3),
    "per_token": ("per token after the first (quire: TPOT, guidellm: ITL)", "ms", 1e3),
    "mean_gap": ("mean gap between tokens (quire: mean ITL)", "ms", 1e3),
    "per_token_with_first": ("per token with the first (guidellm: TPOT)", "ms", 1e3),
    "last_token": ("last token (E2E)", "ms", 1e3),
    "requests": ("requests a second", "req/s", 1.0),
    "output": ("output tokens a second", "tok/s", 1.0),
}
"""By field: its name, its unit, and what it is multiplied with."""


def agreed(answers: Sequence[Answer], seconds: float) -> Agreed:
    """A run of `seconds` from the first request sent to the end of the last answer."""
    return Agreed(
        first_token=median(answer.first for answer in answers),
        per_token=median((answer.last - answer.first) / (answer.tokens - 1) for answer in answers),
        # answers of one length: the mean over answers is the mean over gaps
        mean_gap=fmean((answer.last - answer.first) / (answer.tokens - 1) for answer in answers),
        per_token_with_first=median(answer.last / answer.tokens for answer in answers),
        last_token=median(answer.last for answer in answers),
        requests=len(answers) / seconds,
        output=sum(answer.tokens for answer in answers) / seconds,
    )
