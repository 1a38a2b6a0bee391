"""Places of experts on ranks: each token's choice is computed by exactly one rank, also after copies have moved."""

import pytest
import torch
from torch import Tensor

from quire.layers.expert_places import ExpertPlaces
from quire.spec.expert_copies import Copies, HeldExperts, first_copies

CPU = torch.device("cpu")
EXPERTS, RANKS = 7, 3
MOVED: Copies = ((6, 3), (0,), (0, 1))


def on_ranks(copies: Copies) -> list[ExpertPlaces]:
    return [ExpertPlaces(HeldExperts(rank, EXPERTS, copies), CPU) for rank in range(RANKS)]


def computed_by(ranks: list[ExpertPlaces], ids: Tensor) -> Tensor:
    """The rank of each choice, whose place there holds what was chosen."""
    found = torch.full_like(ids, -1)
    for number, places in enumerate(ranks):
        at = places(ids)
        here = at >= 0
        assert (found[here] == -1).all(), "two ranks compute one choice"
        assert (torch.tensor(places.experts)[at[here]] == ids[here]).all()
        found[here] = number
    assert (found >= 0).all(), "no rank computes a choice"
    return found


@pytest.mark.parametrize("tokens", [1, 5, 1024, 2000])
@pytest.mark.parametrize("spare", [0, 1, 2])
def test_every_choice_has_one_rank(tokens: int, spare: int) -> None:
    ids = torch.randint(0, EXPERTS, (tokens, 2), generator=torch.Generator().manual_seed(tokens))
    ranks = on_ranks(first_copies(EXPERTS, RANKS, spare))
    computed_by(ranks, ids)
    if spare == 2:
        for rank, places in enumerate(ranks):
            places.change(HeldExperts(rank, EXPERTS, MOVED))
        computed_by(ranks, ids)


def test_ranks_with_the_same_expert_take_turns() -> None:
    ranks = on_ranks(MOVED)
    found = computed_by(ranks, torch.zeros((60, 1), dtype=torch.int64))  # all ranks have expert 0
    assert found.flatten().bincount().tolist() == [20, 20, 20]
    single = [int(computed_by(ranks, torch.tensor([[expert]]))) for expert in range(2)]
    assert single == [0, 2], "a single token is not always the first rank's"


def test_what_comes_takes_the_places_of_what_goes() -> None:
    [places, _, _] = on_ranks(((3, 4), (), ()))
    address = places.table.data_ptr()
    assert places.experts == [0, 1, 2, 3, 4]
    held = HeldExperts(0, EXPERTS, ((4, 6), (), ()))
    assert places.coming(held) == [(6, 3)]
    places.change(held)
    assert places.experts == [0, 1, 2, 6, 4]
    assert places.table.data_ptr() == address, "graphs read it there"
    fewer = HeldExperts(0, EXPERTS, ((), (), ()))
    assert places.coming(fewer) == []
    places.change(fewer)
    assert places(torch.tensor([[6, 4, 2]])).tolist() == [[-1, -1, 2]]
    assert places.coming(HeldExperts(0, EXPERTS, ((6, 5), (), ()))) == [(5, 4)], "what was there last is there still"


@pytest.mark.gpu
def test_a_captured_step_follows_copies() -> None:
    device, first = torch.device("cuda"), first_copies(EXPERTS, RANKS, 2)
    here, there = (ExpertPlaces(HeldExperts(0, EXPERTS, first), each) for each in (CPU, device))
    ids = torch.randint(0, EXPERTS, (16, 2), generator=torch.Generator().manual_seed(0))
    given = ids.to(device)
    there(given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = there(given)
    for copies in (first, MOVED, first):
        for places in (here, there):
            places.change(HeldExperts(0, EXPERTS, copies))
        graph.replay()
        assert torch.equal(found.cpu(), here(ids))
