"""Orders of rows, against plain reshaping of tensors."""

import pytest
import torch
from torch import Tensor

from quire.spec.layout import (
    AS_STORED,
    MINUS_ONE,
    TRANSPOSED,
    GroupedRows,
    HeadParts,
    PairedRows,
    TransposedHeads,
    file_shape,
)


def numbered(rows: int) -> Tensor:
    """A tensor whose every row is unlike any other."""
    return torch.arange(rows * 3).view(rows, 3)


@pytest.mark.parametrize(("heads", "head_dim", "rotary"), [(1, 2, 2), (4, 8, 8), (3, 8, 4), (2, 6, 0)])
def test_paired_rows_become_first_ones_then_second_ones(heads: int, head_dim: int, rotary: int) -> None:
    file = numbered(heads * head_dim)
    by_head = file.view(heads, head_dim, 3)
    pairs = by_head[:, :rotary].reshape(heads, rotary // 2, 2, 3)
    expected = torch.cat((pairs[:, :, 0], pairs[:, :, 1], by_head[:, rotary:]), dim=1).reshape(-1, 3)
    order = PairedRows(heads, head_dim, rotary).source_rows()
    assert torch.equal(file[order], expected)


@pytest.mark.parametrize(("groups", "queries", "head_dim"), [(1, 1, 1), (1, 8, 4), (2, 3, 4), (5, 1, 2)])
def test_grouped_rows_become_queries_then_keys_then_values(groups: int, queries: int, head_dim: int) -> None:
    file = numbered(groups * (queries + 2) * head_dim)
    by_group = file.view(groups, queries + 2, head_dim, 3)
    parts = (by_group[:, :queries], by_group[:, queries], by_group[:, queries + 1])
    expected = torch.cat([part.reshape(-1, 3) for part in parts])
    order = GroupedRows(groups, queries, head_dim).source_rows()
    assert torch.equal(file[order], expected)


def test_pairs_may_come_after_rows_that_do_not_turn() -> None:
    file = numbered(2 * 6)
    by_head = file.view(2, 6, 3)
    pairs = by_head[:, 2:].reshape(2, 2, 2, 3)
    expected = torch.cat((by_head[:, :2], pairs[:, :, 0], pairs[:, :, 1]), dim=1).reshape(-1, 3)
    assert torch.equal(file[PairedRows(2, 6, 4, first=2).source_rows()], expected)


def test_keys_and_values_of_heads_become_all_keys_then_all_values() -> None:
    file = numbered(4 * 5)
    by_head = file.view(4, 5, 3)
    expected = torch.cat((by_head[:, :3].reshape(-1, 3), by_head[:, 3:].reshape(-1, 3)))
    assert torch.equal(file[HeadParts(4, 3, 2).source_rows()], expected)


def test_scores_are_the_same_in_both_orders() -> None:
    """What an order may change is where numbers are, not what attention makes of them."""
    order = PairedRows(2, 8, 8).source_rows()
    assert sorted(order) == list(range(16))
    queries, keys = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1)).double()
    torch.testing.assert_close(queries[:, order] @ keys[:, order].T, queries @ keys.T)


def test_only_a_transposed_tensor_has_another_shape_in_its_file() -> None:
    assert file_shape((4, 6), TRANSPOSED) == (6, 4)
    assert file_shape((4, 6), TransposedHeads(2)) == (2, 6, 2)
    for layout in (AS_STORED, MINUS_ONE, PairedRows(1, 4, 4), GroupedRows(1, 2, 1)):
        assert file_shape((4, 6), layout) == (4, 6)
