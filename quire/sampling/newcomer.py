"""Newcomer: a sequence that takes a row, whether it starts or goes on after a preemption or in another engine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quire.core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Newcomer:
    params: SamplingParams
    prompt: Sequence[int]
    output: Sequence[int] = ()
    """What it has already drawn."""
    stop_ids: Iterable[int] = ()
    """Tokens that end it, the model's own included."""
    bad_words: Sequence[Sequence[int]] = ()
    """`params.bad_words`, as tokens."""
