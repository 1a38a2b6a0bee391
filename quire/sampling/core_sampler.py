"""CoreSampler: most ways to draw a token, and to report of it, on the native core. No torch.

Tokens and logprobs are those of `Sampler`. What else a request can ask for is `Sampler`'s alone: grammars and thinking
budgets, logits processors, the rules of transcripts, logprobs of prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quire.core.logprobs import PositionLogprobs
from quire.core.plan import Admission
from quire.core.sampling_params import SamplingParams
from quire.sampling.core_adjustments import CoreAdjustments
from quire.sampling.core_logprobs import CoreLogprobs
from quire.sampling.mode import INVALID_TOKEN, SamplingMode, is_random, sampling_mode
from quire.sampling.seeds import seed_for
from quire.sampling.token_ids import check_token_ids

if TYPE_CHECKING:
    from quire.ops.cpu import _core

_SERVED = frozenset(
    {"n", "best_of", "temperature", "top_p", "top_k", "min_p", "seed"}
    | {"presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "bad_words", "allowed_token_ids"}
    | {"min_tokens", "logprobs", "logprob_token_ids"}
)
"""Parameters that this sampler follows."""
_NOT_OURS = frozenset(
    {"stop", "stop_token_ids", "ignore_eos", "max_tokens", "include_stop_str_in_output", "detokenize"}
    | {"skip_special_tokens", "shown_tokens", "priority", "deadline", "cache_salt", "use_prefix_cache"}
)
"""Parameters that others see to, before a token is drawn or after."""
_USUAL = SamplingParams()
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def can_draw(params: SamplingParams) -> bool:
    """Whether this sampler draws all that a request asks for."""
    others = (name for name in params.__struct_fields__ if name not in _SERVED and name not in _NOT_OURS)
    return all(getattr(params, name) == getattr(_USUAL, name) for name in others)


@dataclass(frozen=True, slots=True)
class CoreDrawn:
    """One token per place of a batch."""

    tokens: Integers
    invalid: Flags
    """Where there is none."""
    logprobs: Mapping[int, PositionLogprobs]
    """By place that reports them."""


class CoreSampler:
    """By row: how its sequence draws."""

    def __init__(self, max_rows: int, vocab_size: int, engine_seed: int, machine: "_core.Machine") -> None:
        self._vocab_size = vocab_size
        self._engine_seed = engine_seed
        self._machine = machine
        self._params: dict[int, SamplingParams] = {}
        self._mode: SamplingMode | None = None
        self._numbers: Floats = np.zeros((3, max_rows), np.float32)
        """Temperature, top-p, min-p."""
        self._integers: Integers = np.zeros((3, max_rows), np.int64)
        """Top-k, seed, stream (the sequence's index in its request)."""
        self._adjustments = CoreAdjustments(vocab_size, machine)
        self._logprobs = CoreLogprobs(machine)

    def admit(self, admission: Admission) -> None:
        """Raises InvalidRequest, and changes nothing, when a token id has no logit."""
        row, params = admission.row, admission.params
        assert row not in self._params, f"row {row} is taken"
        check_token_ids(params, self._vocab_size, admission.bad_words)
        seed = seed_for(admission.request_id, self._engine_seed) if params.seed is None else params.seed
        temperature = params.temperature if is_random(params) else 0.0
        self._numbers[:, row] = temperature, params.top_p, params.min_p
        self._integers[:, row] = params.top_k, seed, admission.index
        self._adjustments.admit(admission)
        self._logprobs.admit(row, params)
        self._params[row] = params
        self._mode = None

    def release(self, row: int) -> None:
        """Nothing happens where it is free."""
        self._params.pop(row, None)
        self._adjustments.release(row)
        self._logprobs.release(row)
        self._mode = None

    def reset(self) -> None:
        """All rows are free."""
        self._params.clear()
        self._adjustments.reset()
        self._logprobs.reset()
        self._mode = None

    def draw(self, logits: Floats, rows: Sequence[int], positions: Integers, history: NDArray[np.int32]) -> CoreDrawn:
        """Draw from `logits` [n, vocabulary], whose numbers may be others afterwards.

        `positions` are where the tokens will stand, and `history` [rows, length] has the tokens before them. A row may
        come several times.
        """
        tokens, invalid = self._argmax(logits)
        reporting = self._logprobs.places(rows)
        own, own_places = logits, reporting
        changing = self._adjustments.places(rows, positions)
        if changing:
            if not set(changing).isdisjoint(reporting):  # logprobs are the model's own
                own, own_places = logits.take(reporting, axis=0), list(range(len(reporting)))
            self._adjustments.apply(logits, changing, rows, positions, history)
            changed = slice(changing[0], changing[-1] + 1)
            tokens[changed], nothing_left = self._argmax(logits[changed])
            # nothing a request asks for hides that the model is broken
            invalid[changed] |= nothing_left
        if self._mode is None:
            self._mode = sampling_mode(self._params.values(), self._vocab_size)
        if self._mode.noise:
            self._draw_randomly(self._mode, logits, rows, positions, tokens)
        tokens[invalid] = INVALID_TOKEN
        if not reporting:
            return CoreDrawn(tokens, invalid, {})
        found = self._logprobs.of(own, own_places, [rows[place] for place in reporting], tokens.take(reporting))
        return CoreDrawn(tokens, invalid, dict(zip(reporting, found, strict=True)))

    def _argmax(self, logits: Floats) -> tuple[Integers, Flags]:
        count, columns = logits.shape
        tokens, invalid = np.empty(count, np.int64), np.empty(count, np.bool_)
        self._machine.argmax(
            logits=logits.ctypes.data,
            rows=count,
            columns=columns,
            tokens=tokens.ctypes.data,
            invalid=invalid.ctypes.data,
        )
        return tokens, invalid

    def _draw_randomly(
        self,
        mode: SamplingMode,
        logits: Floats,
        rows: Sequence[int],
        positions: Integers,
        tokens: Integers,
    ) -> None:
        temperature, top_p, min_p = self._numbers.take(rows, axis=1)
        top_k, seed, stream = self._integers.take(rows, axis=1)
        count, columns = logits.shape
        self._machine.sample(
            logits=logits.ctypes.data,
            rows=count,
            columns=columns,
            temperature=temperature.ctypes.data,
            seed=seed.ctypes.data,
            stream=stream.ctypes.data,
            position=positions.ctypes.data,
            top_k=_address(top_k, mode.top_k),
            top_p=_address(top_p, mode.top_p),
            min_p=_address(min_p, mode.min_p),
            tokens=tokens.ctypes.data,
        )


def _address(array: NDArray[Any], used: bool) -> int:
    return array.ctypes.data if used else 0
