"""When copies of experts move: after so many steps, a layer at a time, once all ranks have read them."""

from concurrent.futures import Future
from typing import Any

import pytest

from quire.core.errors import CheckpointError
from quire.core.plan import LayerCopies
from quire.executor.expert_balancer import CopyPlaces, ExpertBalancer, Loads
from quire.executor.other_rank import RankLost

HOT = [90, 0, 0, 30]
"""On two ranks, of which the second has a copy of expert 0 from the start: 45 tokens and 75."""
MOVED = ((3,), (0,))
"""Then both have 60."""


class Ranks:
    """Says what load it is told to, and reads copies when it is told to."""

    def __init__(self, interval: int = 3) -> None:
        self.looks = 0
        self.counted: Loads = {}
        self.asked: list[LayerCopies] = []
        self._reading: Future[None] = Future()
        self.balancer = ExpertBalancer(CopyPlaces(2, 1, interval), self._loads, self._fetch)

    def steps(self, count: int) -> list[list[LayerCopies]]:
        return [self.balancer.before_step() for _ in range(count)]

    def count(self, *layers: list[int]) -> None:
        for layer, load in enumerate(layers):
            before = self.counted.get(layer, [0] * len(load))
            self.counted[layer] = [(a + b) % 2**32 for a, b in zip(before, load, strict=True)]

    def read(self, error: Exception | None = None) -> None:
        reading, self._reading = self._reading, Future()
        if error is None:
            reading.set_result(None)
        else:
            reading.set_exception(error)

    def _loads(self) -> "Future[Loads]":
        self.looks += 1
        told: Future[Loads] = Future()
        told.set_result({layer: list(row) for layer, row in self.counted.items()})
        return told

    def _fetch(self, asked: LayerCopies) -> "Future[None]":
        self.asked.append(asked)
        return self._reading


def test_a_layer_after_the_other_moves_when_it_was_read() -> None:
    ranks = Ranks()
    ranks.count(HOT, [10, 10, 10, 10], HOT)
    assert ranks.steps(5) == [[]] * 5
    assert ranks.asked == [LayerCopies(0, MOVED)], "the second waits for the first"
    ranks.read()
    assert ranks.steps(1) == [[LayerCopies(0, MOVED)]]
    assert ranks.steps(1) == [[]]
    assert ranks.asked[1:] == [LayerCopies(2, MOVED)], "where the load is even, nothing moves"
    ranks.read()
    assert ranks.steps(2) == [[LayerCopies(2, MOVED)], []]
    assert ranks.balancer.balance is not None
    assert ranks.balancer.balance.copies_moved == 2, "the second rank has had expert 0 since the start"


def test_the_first_look_comes_sooner_than_others() -> None:
    ranks = Ranks(interval=50)
    ranks.count([10, 10, 10, 10])
    looks = []
    for _ in range(120):
        ranks.steps(1)
        looks.append(ranks.looks)
    assert looks.index(1) == 4
    assert looks.index(2) == 4 + 2 + 50, "two steps see the load and decide"


def test_the_figures_are_those_of_the_load_between_two_looks() -> None:
    ranks = Ranks(interval=1)
    ranks.count([2**32 - 10, 0, 0, 0])  # counts wrap around
    ranks.steps(3)
    assert ranks.asked == [], "both ranks have expert 0, and equally much to do"
    ranks.count(HOT)
    ranks.steps(2)
    balance = ranks.balancer.balance
    assert balance is not None
    assert (balance.imbalance, balance.without_copies) == (pytest.approx(75 / 60), pytest.approx(90 / 60))


def test_no_tokens_tell_nothing() -> None:
    ranks = Ranks(interval=1)
    ranks.count([0, 0, 0, 0])
    ranks.steps(9)
    assert ranks.balancer.balance is None
    assert ranks.asked == []


@pytest.mark.parametrize(
    "error", [CheckpointError("rank 1: the file is gone"), OSError("no disk"), RuntimeError("no room")]
)
def test_what_cannot_be_read_changes_nothing(error: Exception, caplog: Any) -> None:
    ranks = Ranks()
    ranks.count(HOT, HOT)
    ranks.steps(5)
    ranks.read(error)
    ranks.count(HOT, HOT)
    assert ranks.steps(5) == [[]] * 5
    assert f"layer 0 stay as they are: {error}" in caplog.text
    assert [each.layer for each in ranks.asked] == [0, 0], "it is tried again after the next look"


def test_a_lost_rank_is_no_unread_copy() -> None:
    ranks = Ranks()
    ranks.count(HOT)
    ranks.steps(5)
    ranks.read(RankLost("rank 1 is lost"))
    with pytest.raises(RankLost):
        ranks.steps(1)
