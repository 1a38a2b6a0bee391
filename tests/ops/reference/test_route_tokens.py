"""Which experts tokens go to, by hand."""

import math

import pytest
import torch

from quire.core.routing import Routing
from quire.ops.functional import route_tokens

LOGITS = torch.tensor([[1.0, 3.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0]])


def test_softmax_of_all_and_of_the_chosen() -> None:
    everything = LOGITS.softmax(dim=-1)
    ids, weights = route_tokens(LOGITS, None, Routing(2, renormalize=False))
    assert ids.tolist() == [[1, 2], [0, 1]], "of equal scores, the lower numbers"
    torch.testing.assert_close(weights, everything.gather(-1, ids))
    ids, weights = route_tokens(LOGITS, None, Routing(2, scale=2.5))
    torch.testing.assert_close(weights[0], 2.5 * LOGITS[0, [1, 2]].softmax(dim=-1))


def test_a_correction_chooses_but_does_not_weigh() -> None:
    correction = torch.tensor([0.0, -10.0, 0.0, 10.0])
    ids, weights = route_tokens(LOGITS, correction, Routing(2, "sigmoid", renormalize=False))
    assert ids.tolist() == [[3, 2], [3, 0]]
    torch.testing.assert_close(weights[0], LOGITS[0, [3, 2]].sigmoid())


@pytest.mark.parametrize(("score", "chosen"), [("largest", [0, 2]), ("two largest", [4, 5])])
def test_groups_come_before_experts(score: str, chosen: list[int]) -> None:
    logits = torch.tensor([[5.0, -9.0, -1.0, -9.0, 3.0, 2.9]])
    routing = Routing(2, "sigmoid", groups=2, top_groups=1, group_score=score)  # type: ignore[arg-type]
    three = route_tokens(logits, None, routing)[0].tolist()
    assert three == [[0, 2]] if score == "largest" else [[4, 5]]
    assert three == [chosen]


def test_scores_of_zero_do_not_divide_by_zero() -> None:
    _, weights = route_tokens(torch.full((1, 4), -200.0), None, Routing(2, "sigmoid"))
    assert weights.tolist() == [[0.0, 0.0]]


def test_sparsemixer_shares_among_those_that_come_near() -> None:
    logits = torch.tensor([[4.0, 3.9, 1.0, -8.0], [-1.0, -4.0, -1.01, -2.0]])
    ids, weights = route_tokens(logits, None, Routing(2, "sparsemixer", nearness=0.05))
    assert ids.tolist() == [[0, 1], [0, 2]]
    first = 1 / (1 + math.exp(-0.1))
    second = 1 / (1 + math.exp(-0.01))
    torch.testing.assert_close(weights, torch.tensor([[first, 1.0], [second, 1.0]]))


def test_no_tokens() -> None:
    ids, weights = route_tokens(torch.zeros(0, 8), None, Routing(2, groups=4, top_groups=2))
    assert (ids.shape, weights.shape) == ((0, 2), (0, 2))
