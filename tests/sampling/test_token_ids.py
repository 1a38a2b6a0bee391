"""Every token id a request names is checked against the logits' width, and the message says which bound."""

from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.sampling.token_ids import LONGEST_BAD_WORD, MAX_BAD_WORD_TOKENS, check_token_ids, within


@pytest.mark.parametrize(
    ("field", "params"),
    [
        ("logit_bias", {"logit_bias": {4: 1.0, 50: 1.0}}),
        ("allowed_token_ids", {"allowed_token_ids": (50, 4)}),
        ("stop_token_ids", {"stop_token_ids": (4, 50)}),
    ],
)
def test_field_and_bound_are_named(field: str, params: dict[str, Any]) -> None:
    check_token_ids(SamplingParams(**params), 51)
    with pytest.raises(InvalidRequest, match=f"{field} names token id 50; the model has 50, 0 to 49") as caught:
        check_token_ids(SamplingParams(**params), 50)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "words",
    [
        [[]],
        [[1], []],
        [[1, 50]],
        [[-1]],
        [[1] * (LONGEST_BAD_WORD + 1)],
        [[1] * 1000] * (MAX_BAD_WORD_TOKENS // 1000 + 1),
    ],
)
def test_bad_words_are_checked_as_tokens(words: list[list[int]]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_token_ids(SamplingParams(), 50, words)
    assert caught.value.field == "bad_words"


def test_what_is_allowed_passes() -> None:
    check_token_ids(SamplingParams(), 1)
    check_token_ids(SamplingParams(logit_bias={}, stop_token_ids=(0, 49)), 50, [[49], [0, 1]])


def test_within() -> None:
    assert within([3, -1, 4, 5, 1 << 40], 5) == [3, 4]
