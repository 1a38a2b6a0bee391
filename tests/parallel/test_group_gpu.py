"""NCCL's exchanges with a group of one, at once and within a CUDA graph."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from quire.parallel.group import Group
from quire.parallel.meeting import meet

pytestmark = pytest.mark.gpu


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    alone = meet(0, 1, str(tmp_path / "meeting"), torch.device("cuda", 0))
    yield alone
    alone.close()


def test_every_exchange(group: Group) -> None:
    x = torch.randn(3, 8, device="cuda")
    assert torch.equal(group.all_reduce(x.clone()), x)
    assert torch.equal(group.broadcast(x.clone()), x)
    assert torch.equal(group.gather_columns(x, 8), x)
    assert torch.equal(group.gather_rows(x, [3]), x)
    assert torch.equal(group.sum_rows(x.clone(), [3]), x)


def test_within_a_graph(group: Group) -> None:
    x = torch.randn(3, 8, device="cuda")

    def work() -> torch.Tensor:
        return group.gather_columns(group.broadcast(group.all_reduce(x * 2)), 8)

    work()  # connects, which no graph may hold
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        found = work()
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(found, x * 2)
