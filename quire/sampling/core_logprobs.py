"""CoreLogprobs: logprobs of drawn tokens for those sequences that report them, on the native core. No torch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quire.core.logprobs import PositionLogprobs
from quire.core.sampling_params import SamplingParams
from quire.sampling.mode import num_reported
from quire.sampling.packed_logprobs import logprobs_of, positions_of, width_of

if TYPE_CHECKING:
    from quire.ops.cpu import _core


class CoreLogprobs:
    """By row: what its sequence reports."""

    def __init__(self, machine: "_core.Machine") -> None:
        self._machine = machine
        self._asked: dict[int, tuple[int, tuple[int, ...]]] = {}
        """Of how many likely tokens, and of which besides."""

    def admit(self, row: int, params: SamplingParams) -> None:
        count = num_reported(params)
        if count is not None:
            self._asked[row] = count, params.logprob_token_ids

    def release(self, row: int) -> None:
        """Nothing happens where it reports nothing."""
        self._asked.pop(row, None)

    def reset(self) -> None:
        """No row reports anything."""
        self._asked.clear()

    def places(self, rows: Sequence[int]) -> list[int]:
        """Those of a batch that report."""
        known = self._asked
        return [place for place, row in enumerate(rows) if row in known] if known else []

    def of(
        self, logits: NDArray[np.float32], places: Sequence[int], rows: Sequence[int], tokens: NDArray[np.int64]
    ) -> list[PositionLogprobs]:
        """At these places of `logits` [n, vocabulary], one for each of `rows`, at which `tokens` were drawn."""
        asked = [self._asked[row] for row in rows]
        count, columns = logits.shape
        most = min(max(each for each, _ in asked), columns)
        at = np.array(places, np.int64)
        packed = np.empty((len(at), width_of(most)), np.int32)
        self._machine.token_logprobs(
            logits=logits.ctypes.data,
            rows=count,
            columns=columns,
            count=len(at),
            places=at.ctypes.data,
            tokens=tokens.ctypes.data,
            most=most,
            packed=packed.ctypes.data,
        )
        wanted = [(number, each, names) for number, (each, names) in enumerate(asked)]
        most_named = max(len(names) for _, names in asked)
        if not most_named:
            return positions_of(packed, wanted)
        named = np.zeros((len(at), most_named), np.float32)
        drawn = logprobs_of(packed)[:, 0]
        for number, (place, (_, names)) in enumerate(zip(places, asked, strict=True)):
            # what one token's logit and logprob differ by is the same for all tokens of a position
            own = logits[place]
            named[number, : len(names)] = own[list(names)] - own[tokens[number]] + drawn[number]
        return positions_of(packed, wanted, named)
