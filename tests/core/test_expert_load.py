"""How evenly experts are chosen, by hand; what is recent, from counts that only grow."""

import numpy as np
import pytest

from quire.core.expert_load import ExpertLoad, RecentLoad


def load(*counts: list[float]) -> ExpertLoad:
    return ExpertLoad(tuple(range(1, 1 + len(counts))), np.array(counts, np.float64))


def test_balance_of_layers_that_have_tokens() -> None:
    even, uneven = load([5.0] * 20, [0.0] * 20, [81.0, 9.0, *[0.0] * 16, 5.0, 5.0]).balance()
    assert (even.layer, even.imbalance, even.hot_share) == (1, 1.0, 0.1)
    assert (uneven.layer, uneven.imbalance, uneven.hot_share) == (3, 81 / 5, 0.9)


def test_few_experts_have_one_hottest() -> None:
    (layer,) = load([1.0, 3.0, 0.0]).balance()
    assert layer.hot_share == 0.75


def test_recent_load_forgets_while_tokens_come_and_rests_when_none_do() -> None:
    recent = RecentLoad()
    assert not recent.look(None)
    assert recent.look(load([10.0, 0.0]))
    assert recent.look(load([10.0, 10.0]))
    assert recent.recent is not None
    assert recent.recent.counts.tolist() == [[9.0, 10.0]]
    assert not recent.look(load([10.0, 10.0]))
    assert recent.recent.counts.tolist() == [[9.0, 10.0]]
    assert recent.total == 20


def test_counts_that_begin_anew() -> None:
    recent = RecentLoad()
    recent.look(load([10.0, 4.0]))
    assert recent.look(load([1.0, 2.0]))
    assert recent.total == 17
    assert recent.recent is not None
    assert recent.recent.counts[0] == pytest.approx([10.0, 5.6])


def test_shares_of_an_average_expert() -> None:
    assert load([2.0, 6.0], [0.0, 0.0], [0.25, 0.75]).shares() == [[0.5, 1.5], [0.0, 0.0], [0.5, 1.5]]
