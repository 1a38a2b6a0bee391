"""Sampler: from a batch's logits to one token per row, on the device.

The cheapest mode that serves the admitted sequences is chosen from host values; nothing here waits for the device,
except where a batch reports logprobs and the caller does not say which rows it consists of.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.ops.functional import argmax, sample_tokens
from quire.ops.upload import upload
from quire.sampling.logprobs import LogprobsTensors, logprobs_of
from quire.sampling.mode import INVALID_TOKEN
from quire.sampling.state import SamplingState


@dataclass(frozen=True, slots=True)
class BatchLogprobs:
    """Logprobs of those places of a batch that asked for them."""

    places: tuple[int, ...]
    counts: tuple[int, ...]
    """How many of the most likely tokens each of them asked for."""
    tensors: LogprobsTensors
    names: tuple[tuple[int, ...], ...] = ()
    """Tokens that each of them named; empty where none named any."""


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One token per place of the batch."""

    tokens: Tensor  # int64 [n]
    invalid: Tensor  # bool [n]: logits with NaN or +inf, or no token left to draw; the token is INVALID_TOKEN
    logprobs: BatchLogprobs | None


class Sampler:
    def __init__(self, state: SamplingState) -> None:
        self._state = state

    def sample(
        self, logits: Tensor, rows: Tensor, positions: Tensor, host_rows: Sequence[int] | None = None
    ) -> SampledTokens:
        """Draw from `logits` [n, vocab] of any float type, which may be overwritten.

        `rows` and `positions` are int64 [n]: whose logits, and where in its sequence (prompt included) the token will
        stand. `host_rows` are the same rows as the host knows them. Raw logprobs are reported: the model's own, before
        anything a request asked for.
        """
        asked = self._asked(rows, host_rows) if self._state.mode.logprobs else {}
        places = upload(list(asked), torch.int64, logits.device) if asked else None
        raw = None if places is None else logits[places]
        tokens, invalid = self._draw(logits, rows, positions)
        if places is None or raw is None:
            return SampledTokens(tokens, invalid, None)
        names = self._names(rows, host_rows, asked)
        tensors = logprobs_of(raw, tokens[places], max(asked.values()), names)
        return SampledTokens(tokens, invalid, BatchLogprobs(tuple(asked), tuple(asked.values()), tensors, names))

    def _draw(self, logits: Tensor, rows: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens, and for which rows there is none."""
        processors = self._state.active_processors()
        tokens, invalid = argmax(logits)
        if not processors and not self._state.mode.noise:
            return tokens, invalid
        logits = logits.to(torch.float32)
        for processor in processors:
            processor.apply(logits, rows, positions)
        if processors:
            # they may hide what is wrong with the model's logits, or leave nothing of them
            tokens, nothing_left = argmax(logits)
            invalid = invalid | nothing_left
        if self._state.mode.noise:
            tokens = self._draw_randomly(logits, rows, positions)
        return tokens.masked_fill(invalid, INVALID_TOKEN), invalid

    def _draw_randomly(self, logits: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        mode = self._state.mode
        settings = self._state.settings(rows)
        return sample_tokens(
            logits,
            settings.temperature,
            settings.seed,
            settings.stream,
            positions,
            settings.top_k if mode.top_k else None,
            settings.top_p if mode.top_p else None,
            settings.min_p if mode.min_p else None,
            width=mode.width,
        )

    def _asked(self, rows: Tensor, host_rows: Sequence[int] | None) -> dict[int, int]:
        """By place in the batch: how many of the most likely tokens it reports."""
        known: Sequence[int] = rows.tolist() if host_rows is None else host_rows
        counts = ((place, self._state.num_logprobs(row)) for place, row in enumerate(known))
        return {place: count for place, count in counts if count is not None}

    def _names(
        self, rows: Tensor, host_rows: Sequence[int] | None, places: Collection[int]
    ) -> tuple[tuple[int, ...], ...]:
        """Tokens that sequences at these places of the batch name; empty where none names any."""
        known: Sequence[int] = rows.tolist() if host_rows is None else host_rows
        names = tuple(self._state.named_tokens(known[place]) for place in places)
        return names if any(names) else ()
