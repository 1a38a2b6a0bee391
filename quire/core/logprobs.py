"""What a client reads about one position: the token there and the most likely ones. Plain data, no torch."""

import msgspec


class PositionLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Natural logarithms of probabilities under the model itself, before temperature, filters and penalties."""

    token: int
    logprob: float
    rank: int
    """1 for the most likely; of equal tokens the lower id ranks first."""
    top: tuple[tuple[int, float], ...] = ()
    """The most likely tokens, best first, whether or not `token` is among them."""
    named: tuple[tuple[int, float], ...] = ()
    """Tokens that the request names (`logprob_token_ids`), in its order."""


class PromptSpan(msgspec.Struct, frozen=True, array_like=True):
    """What a step found of consecutive prompt tokens. After a preemption the same ones may come again."""

    first: int
    """Position of the first of them in the prompt."""
    found: list[PositionLogprobs]
