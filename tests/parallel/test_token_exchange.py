"""Tokens that go to the experts of all ranks and come back, between threads that stand for ranks."""

from pathlib import Path

import pytest
import torch

from quire.parallel.group import Group
from quire.parallel.token_exchange import TokenExchange
from tests.parallel.test_group import on_ranks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("counts", [[2, 2, 2], [3, 0, 1], [0, 0, 4], [1, 5, 2]])
def test_tokens_come_back_with_what_all_ranks_add(tmp_path: Path, counts: list[int], dtype: torch.dtype) -> None:
    everyones = torch.randn(sum(counts), 5, generator=torch.Generator().manual_seed(3)).to(dtype)
    own = torch.split(everyones, counts)

    def work(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
        exchange = TokenExchange(group)
        exchange.begin(counts)
        gathered = exchange.gather(own[group.rank])
        return gathered, exchange.give_back(gathered * (group.rank + 1))

    for rank, (gathered, returned) in enumerate(on_ranks(3, tmp_path, work)):
        assert torch.equal(gathered, everyones)
        torch.testing.assert_close(returned, own[rank] * 6)


def test_every_step_has_its_own_counts(tmp_path: Path) -> None:
    def work(group: Group) -> list[list[float]]:
        exchange = TokenExchange(group)
        found = []
        for counts in ([1, 2], [0, 1], [3, 3]):
            exchange.begin(counts)
            x = torch.full((counts[group.rank], 1), float(group.rank))
            found.append(exchange.gather(x).flatten().tolist())
        return found

    for found in on_ranks(2, tmp_path, work):
        assert found == [[0, 1, 1], [1], [0, 0, 0, 1, 1, 1]]
