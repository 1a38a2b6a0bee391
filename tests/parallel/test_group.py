"""Collectives between threads that stand for ranks; gloo does not mind."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TypeVar

import pytest
import torch

from quire.parallel.group import Group
from quire.parallel.meeting import meet

_T = TypeVar("_T")


def on_ranks(count: int, folder: Path, work: Callable[[Group], _T]) -> list[_T]:
    def one(rank: int) -> _T:
        group = meet(rank, count, str(folder / "meeting"), torch.device("cpu"), patience=60)
        try:
            return work(group)
        finally:
            group.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums(tmp_path: Path, dtype: torch.dtype) -> None:
    def work(group: Group) -> torch.Tensor:
        return group.all_reduce(torch.full((2, 3), float(group.rank + 1), dtype=dtype).t())

    for found in on_ranks(3, tmp_path, work):
        assert torch.equal(found, torch.full((3, 2), 6.0, dtype=dtype))


def test_the_first_ranks_values_reach_all(tmp_path: Path) -> None:
    for found in on_ranks(2, tmp_path, lambda group: group.broadcast(torch.tensor([7 + group.rank]))):
        assert found.tolist() == [7]


def test_columns_come_together_on_the_first_rank(tmp_path: Path) -> None:
    whole = torch.arange(14.0).view(2, 7)
    first, second, third = on_ranks(
        3, tmp_path, lambda group: group.gather_columns(whole.split([3, 2, 2], dim=1)[group.rank], 7)
    )
    assert torch.equal(first, whole)
    assert second.shape == third.shape == whole.shape


def test_a_rank_that_does_not_come_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    left = Event()

    def one(rank: int) -> None:
        group = meet(rank, 2, str(tmp_path / "meeting"), torch.device("cpu"), patience=1)
        try:
            if rank == 0:
                with pytest.raises(RuntimeError, match=r"(?i)timed? ?out"):
                    group.all_reduce(torch.ones(1))
                left.set()
            else:
                left.wait()
        finally:
            group.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(2)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_rank_gets_the_rows_that_are_for_it(tmp_path: Path, dtype: torch.dtype) -> None:
    flows = [[1, 0, 2], [0, 0, 3], [2, 1, 0]]  # by sender and receiver

    def work(group: Group) -> torch.Tensor:
        rows = [[10 * group.rank + to, at] for to, count in enumerate(flows[group.rank]) for at in range(count)]
        x = torch.tensor(rows, dtype=dtype).reshape(-1, 2)
        return group.exchange_rows(x, flows[group.rank], [flow[group.rank] for flow in flows])

    for to, found in enumerate(on_ranks(3, tmp_path, work)):
        assert found.tolist() == [[10 * rank + to, at] for rank in range(3) for at in range(flows[rank][to])]
