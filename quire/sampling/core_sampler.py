"""CoreSampler: the common ways to draw a token, on the native core: argmax, temperature, top-k, top-p, min-p. No torch.

Tokens are those that `Sampler` draws. Everything else that a request can ask for is `Sampler`'s alone.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quire.core.plan import Admission
from quire.core.sampling_params import SamplingParams
from quire.sampling.mode import INVALID_TOKEN, SamplingMode, is_random, num_reported, sampling_mode
from quire.sampling.seeds import seed_for
from quire.sampling.token_ids import check_token_ids

if TYPE_CHECKING:
    from quire.ops.cpu import _core

_SERVED = frozenset({"n", "best_of", "temperature", "top_p", "top_k", "min_p", "seed"})
"""Parameters that this sampler follows."""
_NOT_OURS = frozenset(
    {"stop", "stop_token_ids", "ignore_eos", "max_tokens", "include_stop_str_in_output", "detokenize"}
    | {"skip_special_tokens", "shown_tokens", "priority", "deadline", "cache_salt", "use_prefix_cache"}
)
"""Parameters that others see to, before a token is drawn or after."""
_USUAL = SamplingParams()


def can_draw(params: SamplingParams) -> bool:
    """Whether this sampler draws all that a request asks for."""
    if num_reported(params) is not None:
        return False
    others = (name for name in params.__struct_fields__ if name not in _SERVED and name not in _NOT_OURS)
    return all(getattr(params, name) == getattr(_USUAL, name) for name in others)


class CoreSampler:
    """By row: how its sequence draws."""

    def __init__(self, max_rows: int, vocab_size: int, engine_seed: int, machine: "_core.Machine") -> None:
        self._vocab_size = vocab_size
        self._engine_seed = engine_seed
        self._machine = machine
        self._params: dict[int, SamplingParams] = {}
        self._mode: SamplingMode | None = None
        self._numbers: NDArray[np.float32] = np.zeros((3, max_rows), np.float32)
        """Temperature, top-p, min-p."""
        self._integers: NDArray[np.int64] = np.zeros((3, max_rows), np.int64)
        """Top-k, seed, stream (the sequence's index in its request)."""

    def admit(self, admission: Admission) -> None:
        """Raises InvalidRequest, and changes nothing, when a token id has no logit."""
        row, params = admission.row, admission.params
        assert row not in self._params, f"row {row} is taken"
        check_token_ids(params, self._vocab_size)
        seed = seed_for(admission.request_id, self._engine_seed) if params.seed is None else params.seed
        temperature = params.temperature if is_random(params) else 0.0
        self._numbers[:, row] = temperature, params.top_p, params.min_p
        self._integers[:, row] = params.top_k, seed, admission.index
        self._params[row] = params
        self._mode = None

    def release(self, row: int) -> None:
        """Nothing happens where it is free."""
        self._params.pop(row, None)
        self._mode = None

    def reset(self) -> None:
        """All rows are free."""
        self._params.clear()
        self._mode = None

    def draw(
        self, logits: NDArray[np.float32], rows: Sequence[int], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Tokens, and for which rows there is none; `positions` are where the tokens will stand."""
        tokens, invalid = np.empty(len(rows), np.int64), np.empty(len(rows), np.bool_)
        count, columns = logits.shape
        self._machine.argmax(
            logits=logits.ctypes.data,
            rows=count,
            columns=columns,
            tokens=tokens.ctypes.data,
            invalid=invalid.ctypes.data,
        )
        if self._mode is None:
            self._mode = sampling_mode(self._params.values(), self._vocab_size)
        if not self._mode.noise:
            return tokens, invalid
        self._draw_randomly(self._mode, logits, rows, positions, tokens)
        tokens[invalid] = INVALID_TOKEN
        return tokens, invalid

    def _draw_randomly(
        self,
        mode: SamplingMode,
        logits: NDArray[np.float32],
        rows: Sequence[int],
        positions: NDArray[np.int64],
        tokens: NDArray[np.int64],
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
