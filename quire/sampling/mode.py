"""SamplingMode: what the admitted sequences ask of a step, as host values.

It chooses the cheapest way to sample without asking the device, and names the CUDA graph that does it. Plain numbers,
no torch.
"""

from collections.abc import Collection
from dataclasses import dataclass

from quire.core.checks import MAX_LOGPROBS
from quire.core.sampling_params import SamplingParams

INVALID_TOKEN = 0
"""Stands where nothing could be drawn; a real id, so that nothing downstream can index past a table."""

WIDEST = 1024
"""Beyond this many candidates, picking them costs what sorting the vocabulary costs."""

GREEDY_BELOW = 1e-5
"""A lower temperature takes the most likely token: it could only choose between logits that differ by rounding."""

_USUALLY_REPORTED = 20
"""Logprobs that clients of OpenAI's API can ask for."""


@dataclass(frozen=True, slots=True)
class SamplingMode:
    """False or None: no admitted sequence uses it, so no step computes it."""

    noise: bool = False
    """Some sequence has a temperature; otherwise a step is an argmax."""
    top_k: bool = False
    top_p: bool = False
    min_p: bool = False
    width: int | None = None
    """How many of the most likely tokens decide top-k and top-p; None: all of them."""
    adjusts: bool = False
    """Some sequence changes its logits: by penalties, a bias, a grammar..."""
    reported: int | None = None
    """Logprobs of so many of the most likely tokens are reported, beside those of what was drawn."""
    names: bool = False
    """Some sequence names tokens whose logprobs it wants."""
    speech: bool = False
    """Some sequence is a transcript, which has rules of its own."""
    processors: tuple[str, ...] = ()
    """Logits processors of plugins that some sequence asks for, in the order of their names."""
    penalizes: bool = False
    """Drafts are verified, and some sequence has penalties: what it draws depends on every token before."""
    cuts_drafts: bool = False
    """Drafts are verified, and some sequence has a grammar, which may rule out some of its own."""

    def of_graph(self) -> "SamplingMode":
        """The mode of the graph that serves this one, of few there are: rows that ask for nothing cost it nothing."""
        if self == SamplingMode(noise=self.noise, width=self.width):
            return SamplingMode(noise=self.noise)
        wide = self.names or (self.reported or 0) > _USUALLY_REPORTED
        return SamplingMode(
            noise=True,
            top_k=True,
            top_p=True,
            min_p=True,
            adjusts=True,
            reported=MAX_LOGPROBS if wide else _USUALLY_REPORTED,
            names=wide,
            speech=self.speech,
            processors=self.processors,
            penalizes=self.penalizes,
            cuts_drafts=self.cuts_drafts,
        )


def sampling_mode(params: Collection[SamplingParams], vocab_size: int, *, adjusts: bool = False) -> SamplingMode:
    """The mode that serves all of these sequences."""
    random = [each for each in params if is_random(each)]
    return SamplingMode(
        noise=bool(random),
        top_k=any(0 < each.top_k < vocab_size for each in random),
        top_p=any(each.top_p < 1 for each in random),
        min_p=any(each.min_p > 0 for each in random),
        width=_width(random, vocab_size),
        adjusts=adjusts,
        reported=max((count for each in params if (count := num_reported(each)) is not None), default=None),
        names=any(each.logprob_token_ids for each in params),
        speech=any(each.speech is not None for each in params),
        processors=tuple(sorted({name for each in params for name in each.logits_processor_args or ()})),
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
    # a power of two: few widths
    return min(1 << max(widest - 1, 0).bit_length(), vocab_size)
