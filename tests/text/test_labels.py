"""What becomes of a classifier's raw scores."""

import math

import pytest

from quire.core.errors import InvalidRequest
from quire.text.labels import Labels


def test_several_labels_share_one() -> None:
    labels = Labels("m", ("a", "b", "c"))
    found = labels.probabilities([1.0, 2.0, 3.0])
    assert sum(found) == pytest.approx(1.0)
    assert found[2] / found[1] == pytest.approx(math.e)


def test_labels_that_may_all_fit_stand_each_on_its_own() -> None:
    assert Labels("m", ("a", "b"), multi_label=True).probabilities([0.0, 0.0]) == [0.5, 0.5]
    assert Labels("m", ("a",)).probabilities([0.0]) == [0.5]


def test_numbers_of_a_regression_stay_as_they_are() -> None:
    labels = Labels("m", ("stars",), regression=True)
    assert labels.probabilities([4.5]) == [4.5]
    assert labels.read("classify", [4.5]) == [4.5]
    assert labels.score([0.0]) == 0.5  # pairs go by what sentence-transformers says of them


@pytest.mark.parametrize("score", [-1e4, 1e4])
def test_large_scores_overflow_nothing(score: float) -> None:
    assert Labels("m", ("a",)).probabilities([score]) == [float(score > 0)]
    assert sum(Labels("m", ("a", "b")).probabilities([score, -score])) == 1.0


def test_what_a_model_does_where_nobody_says() -> None:
    assert Labels("m", ("a",)).usual_task == "classify"
    assert Labels("m").usual_task == "token_embed"


def test_an_instruction_needs_a_prompt_with_a_place_for_it() -> None:
    Labels("m", ("yes",), takes_instruction=True).check_instruction("Judge")
    Labels("m", ("yes",)).check_instruction(None)
    with pytest.raises(InvalidRequest, match="m reads pairs without one") as refused:
        Labels("m", ("yes",)).check_instruction("Judge")
    assert refused.value.field == "instruction"
