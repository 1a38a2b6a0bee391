"""count_tokens: what was drawn is counted for those rows whose penalties ask for it."""

from torch import Tensor

from quire.ops.adjustments import OUTPUT_UNIT
from quire.ops.row_tensors import RowTensors


def count_tokens(counts: RowTensors, rows: Tensor, tokens: Tensor) -> None:
    for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
        counted = counts.get(row)
        if counted is not None:
            counted[token] += OUTPUT_UNIT
