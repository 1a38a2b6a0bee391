"""Sampler: from a batch's logits to one token per row, on the device.

What a mode asks for is done for all rows at once, and costs those that do not ask for it next to nothing. Nothing here
waits for the device.
"""

from dataclasses import dataclass

from torch import Tensor

from quire.ops.functional import adjust_logits, apply_speech_rules, argmax, sample_tokens
from quire.sampling.logprobs import LogprobsTensors, logprobs_of
from quire.sampling.mode import SamplingMode
from quire.sampling.state import SamplingState


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One token per place of the batch."""

    tokens: Tensor  # int64 [n]
    invalid: Tensor  # bool [n]: logits with NaN or +inf, or no token left to draw; the token is INVALID_TOKEN
    logprobs: LogprobsTensors | None = None
    """Of those places that asked for them; others mean nothing."""

    def first(self, count: int) -> "SampledTokens":
        logprobs = None if self.logprobs is None else self.logprobs.first(count)
        return SampledTokens(self.tokens[:count], self.invalid[:count], logprobs)


class Sampler:
    def __init__(self, state: SamplingState, history: Tensor) -> None:
        """`history` int32 [rows, length] has the tokens of all rows, up to those that are drawn next."""
        self._state = state
        self._history = history
        self.spare_row = len(history) - 1

    def sample(self, logits: Tensor, rows: Tensor, positions: Tensor, mode: SamplingMode) -> SampledTokens:
        """Draw from `logits` [n, vocab] of any float type.

        `rows` and `positions` are int64 [n]: whose logits, and where in its sequence (prompt included) the token will
        stand. Reported logprobs are the model's own, before anything that a request asked for; those of transcripts are
        by their rules, except of tokens that a request names.
        """
        own = logits
        if mode.speech and self._state.speech is not None:
            logits = apply_speech_rules(logits, rows, positions, self._history, self._state.speech.tensors)
        tokens, invalid = self.draw(logits, rows, positions, mode)
        if mode.adjusts:
            self.count(rows, tokens)
        logprobs = None if mode.reported is None else self.report(logits, rows, tokens, mode, own)
        return SampledTokens(tokens, invalid, logprobs)

    def draw(self, logits: Tensor, rows: Tensor, positions: Tensor, mode: SamplingMode) -> tuple[Tensor, Tensor]:
        """The tokens, and where there are none; nothing is counted or reported. A row may come several times."""
        if mode.processors:
            logits = self._state.processors.apply(mode.processors, logits, rows, positions, self._history)
        adjusted = None
        if mode.adjusts:
            asked = self._state.adjustments.tensors
            adjusted = adjust_logits(logits, rows, positions, self._history, asked)
        if mode.noise:
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
                adjusted=adjusted,
                width=mode.width,
            )
        return argmax(logits, adjusted)

    def count(self, rows: Tensor, tokens: Tensor) -> None:
        """Tokens are those of their rows from now on; no row but the spare one comes twice."""
        self._state.append(rows, tokens)

    def report(
        self, logits: Tensor, rows: Tensor, tokens: Tensor, mode: SamplingMode, own: Tensor | None = None
    ) -> LogprobsTensors:
        """What the model thought of the tokens drawn; of tokens that are named, by its `own` logits if they differ."""
        assert mode.reported is not None, "nobody asked"
        named = self._state.named[rows] if mode.names else None
        own = None if own is logits else own
        return logprobs_of(logits, tokens, self._state.reported[rows], mode.reported, named, own)
