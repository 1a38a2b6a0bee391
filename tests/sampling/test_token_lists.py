"""Lists of different lengths side by side."""

import torch

from quire.sampling.token_lists import TokenLists
from tests.sampling.rows import CPU


def added(lists: TokenLists, rows: list[int]) -> list[list[float]]:
    logits = torch.zeros(len(rows), 4)
    lists.add_to(logits, torch.tensor(rows), lists.values[torch.tensor(rows)])
    return logits.tolist()


def test_padding_adds_nothing() -> None:
    lists = TokenLists(3, CPU)
    lists.put(2, [3], [1.5])
    lists.put(0, [0, 1, 2], [1.0, 2.0, 3.0])
    assert added(lists, [0, 1, 2, 0]) == [[1, 2, 3, 0], [0] * 4, [0, 0, 0, 1.5], [1, 2, 3, 0]]


def test_dropped_lists_leave_nothing() -> None:
    lists = TokenLists(2, CPU)
    lists.put(0, [0, 1], [1.0, 2.0])
    lists.put(1, [2], [4.0])
    lists.drop(0)
    lists.drop(0)
    assert added(lists, [0, 1]) == [[0] * 4, [0, 0, 4, 0]]
    lists.put(0, [3], [5.0])
    assert added(lists, [0]) == [[0, 0, 0, 5]]
    lists.drop(0)
    lists.drop(1)
    assert lists.is_empty
    assert lists.ids.shape == (2, 0)
