"""From what `token_logprobs` packs of each position to plain data. No torch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quire.core.logprobs import PositionLogprobs

Asked = tuple[int, int, Sequence[int]]
"""A position, how many of the most likely tokens it asked for, and the tokens that it named."""


def width_of(most: int) -> int:
    """Integers of a position: its rank, then as many ids as logprobs, the given token's first."""
    return 1 + 2 * (1 + most)


def ids_of(packed: NDArray[np.int32]) -> NDArray[np.int32]:
    return packed[:, 1 : 1 + packed.shape[1] // 2]


def logprobs_of(packed: NDArray[np.int32]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = packed[:, 1 + packed.shape[1] // 2 :].view(np.float32)
    return found


def positions_of(
    packed: NDArray[np.int32], asked: Sequence[Asked], named: NDArray[np.float32] | None = None
) -> list[PositionLogprobs]:
    """Of some positions of `packed` int32 [n, width]; `named` [n, names] are logprobs of the tokens they named."""
    at = [place for place, _, _ in asked]
    width = 1 + max((count for _, count, _ in asked), default=0)  # no more is made into Python's numbers
    rows = zip(
        ids_of(packed)[at, :width].tolist(),
        logprobs_of(packed)[at, :width].tolist(),
        packed[at, 0].tolist(),
        [()] * len(at) if named is None else named[at].tolist(),
        asked,
        strict=True,
    )
    return [
        PositionLogprobs(
            ids[0],
            values[0],
            rank,
            tuple(zip(ids[1 : 1 + count], values[1 : 1 + count], strict=True)),
            tuple(zip(names, of_names, strict=False)) if names else (),
        )
        for ids, values, rank, of_names, (_, count, names) in rows
    ]
