"""SamplingMode: what the admitted sequences ask of a step, as host values.

It chooses the cheapest way to sample without asking the device, and names the CUDA graph that does it. Plain numbers,
no torch.
"""

from collections.abc import Collection
from dataclasses import dataclass

from quire.core.sampling_params import SamplingParams

INVALID_TOKEN = 0
"""Stands where nothing could be drawn; a real id, so that nothing downstream can index past a table."""

WIDEST = 1024
"""Beyond this many candidates, picking them costs what sorting the vocabulary costs."""

GREEDY_BELOW = 1e-5
"""A lower temperature takes the most likely token: it could only choose between logits that differ by rounding."""


@dataclass(frozen=True, slots=True)
class SamplingMode:
    """False or None: no admitted sequence uses it, so no step computes it."""

    noise: bool
    """Some sequence has a temperature; otherwise a step is an argmax."""
    top_k: bool
    top_p: bool
    min_p: bool
    width: int | None
    """How many of the most likely tokens decide top-k and top-p; None: all of them."""
    logprobs: bool
    """Some sequence reports logprobs of its tokens."""


def sampling_mode(params: Collection[SamplingParams], vocab_size: int) -> SamplingMode:
    """The mode that serves all of these sequences."""
    random = [each for each in params if is_random(each)]
    return SamplingMode(
        noise=bool(random),
        top_k=any(0 < each.top_k < vocab_size for each in random),
        top_p=any(each.top_p < 1 for each in random),
        min_p=any(each.min_p > 0 for each in random),
        width=_width(random, vocab_size),
        logprobs=any(num_reported(each) is not None for each in params),
    )


def is_random(params: SamplingParams) -> bool:
    return params.temperature >= GREEDY_BELOW


def num_reported(params: SamplingParams) -> int | None:
    """How many of the most likely tokens are reported beside each drawn one; None: not even its own logprob is."""
    if params.logprobs is None and params.num_sequences > params.n:
        return 0  # best-of ranks by the logprobs of what was drawn
    return params.logprobs


def _width(random: list[SamplingParams], vocab_size: int) -> int | None:
    widest = max((each.top_k for each in random), default=0)
    if widest > min(WIDEST, vocab_size) or any(each.top_p < 1 and each.top_k <= 0 for each in random):
        return None
    # a power of two: few widths, so few graphs
    return min(1 << max(widest - 1, 0).bit_length(), vocab_size)
