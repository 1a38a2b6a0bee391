"""One processor by itself, on a few rows."""

from collections.abc import Sequence
from typing import Any

import torch

from quire.core.sampling_params import SamplingParams
from quire.sampling.processors.base import LogitsProcessor, Newcomer

VOCAB = 6


def newcomer(
    prompt: Sequence[int] = (0,),
    output: Sequence[int] = (),
    stop_ids: Sequence[int] = (),
    bad_words: Sequence[Sequence[int]] = (),
    **params: Any,
) -> Newcomer:
    return Newcomer(SamplingParams(**params), prompt, output, stop_ids, bad_words)


def changed(
    processor: LogitsProcessor, rows: Sequence[int], positions: Sequence[int] | None = None
) -> list[list[float]]:
    """What becomes of logits that are all 1."""
    logits = torch.ones(len(rows), VOCAB)
    places = torch.tensor(positions if positions is not None else [0] * len(rows))
    processor.apply(logits, torch.tensor(rows), places)
    result: list[list[float]] = logits.tolist()
    return result


def banned(processor: LogitsProcessor, rows: Sequence[int], positions: Sequence[int] | None = None) -> list[list[int]]:
    """By row, the tokens that cannot be drawn."""
    return [
        [token for token, logit in enumerate(row) if logit == float("-inf")]
        for row in changed(processor, rows, positions)
    ]
