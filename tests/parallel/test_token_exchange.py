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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("counts", [[2, 2, 2], [3, 0, 1], [0, 0, 4], [1, 5, 2]])
def test_tokens_are_sent_to_the_ranks_of_their_experts_alone(
    tmp_path: Path, counts: list[int], dtype: torch.dtype
) -> None:
    drawn = torch.Generator().manual_seed(5)
    everyones = torch.randint(-9, 9, (sum(counts), 5), generator=drawn).to(dtype)
    ranks = torch.randint(0, 3, (sum(counts), 2), generator=drawn)  # both may be the same
    own = torch.split(everyones, counts)

    def work(group: Group) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        exchange = TokenExchange(group)
        exchange.begin(counts)
        sent = exchange.send(own[group.rank], ranks)
        return sent.rows, sent.places, exchange.bring_back(sent.rows * (group.rank + 1), sent)

    factors = torch.tensor([sum(each + 1 for each in set(chosen)) for chosen in ranks.tolist()])[:, None].to(dtype)
    expected = torch.split(everyones * factors, counts)
    for rank, (rows, places, returned) in enumerate(on_ranks(3, tmp_path, work)):
        assert places.tolist() == [at for at, chosen in enumerate(ranks.tolist()) if rank in chosen]
        assert torch.equal(rows, everyones[places])
        assert torch.equal(returned, expected[rank])


def test_tokens_are_sent_where_a_gather_brings_many_that_nobody_wants() -> None:
    class Sixteen(Group):
        def __init__(self) -> None:
            self.rank, self.size = 0, 16

    exchange = TokenExchange(Sixteen())
    for counts, top_k, sends in (
        ([100] * 16, 8, True),  # 40 of 100 are wanted on a rank
        ([100] * 16, 40, False),  # nearly all are
        ([2] * 16, 8, False),  # so few that a gather is sooner over
        ([600] + [2] * 15, 40, True),  # all of one rank, for which a gather makes all equally many
    ):
        exchange.begin(counts)
        assert exchange.sends(top_k) is sends
