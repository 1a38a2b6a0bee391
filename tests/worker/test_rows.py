"""Rows on the device: admitted, changed in bulk, and the spare one behind them."""

import torch

from quire.core.plan import Admission, TableDelta
from quire.core.sampling_params import SamplingParams
from quire.worker.rows import Rows


def admission(row: int, tokens: list[int], tables: list[list[int]]) -> Admission:
    return Admission(row, f"request-{row}", 0, SamplingParams(), tokens, len(tokens), 2, tables)


def test_blocks_of_many_rows_change_at_once() -> None:
    rows = Rows(count=3, max_len=64, block_size=16, num_groups=2, device=torch.device("cpu"))
    rows.admit(admission(0, [5, 6, 7], [[1, 2], [9]]))
    rows.admit(admission(2, [8], [[3], [4, 5]]))
    rows.change([TableDelta(0, 2, [[7], [8]]), TableDelta(2, 1, [[6, 10], [11]])])
    assert rows.states.tables[0].tolist() == [[1, 2, 7, 0, 0, 0], [0] * 6, [3, 6, 10, 0, 0, 0], [0] * 6]
    assert rows.states.tables[1].tolist() == [[9, 0, 8, 0, 0, 0], [0] * 6, [4, 11, 0, 0, 0, 0], [0] * 6]
    assert rows.states.tokens[0, :3].tolist() == [5, 6, 7]
    assert rows.states.num_computed.tolist() == [2, 0, 2, 0]
    rows.change([])


def test_the_spare_row_is_empty_again_after_a_step() -> None:
    rows = Rows(count=2, max_len=8, block_size=4, num_groups=1, device=torch.device("cpu"))
    rows.states.num_computed.add_(3)
    rows.rest_spare()
    assert rows.states.num_computed.tolist() == [3, 3, 0]
    assert rows.spare == 2
