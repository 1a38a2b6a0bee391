"""Drafts of models that are spread over ranks: all ranks come to the same, and answers are those without."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.ranks import OtherRanks, running
from tests.parity.tiny import make_tiny
from tests.scheduler.bookkeeping import AlwaysAll
from tests.worker.speculation import NGRAM, SUFFIX

PROMPTS = [[5 + place % (3 + number) for place in range(20 + number)] for number in range(4)]
"""Which repeat themselves, so that there is something to look up."""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherRanks]:
    ranks = OtherRanks(tmp_path_factory.mktemp("ranks"), 1)
    yield ranks
    ranks.close()


@pytest.mark.parametrize(
    ("drafting", "params"),
    [
        (NGRAM, {}),
        (NGRAM, {"temperature": 0.8, "seed": 3, "logprobs": 2}),
        (NGRAM, {"repetition_penalty": 1.2}),
        (SUFFIX, {}),
    ],
)
def test_answers_are_those_without(
    drafting: dict[str, Any], params: dict[str, Any], others: OtherRanks, tmp_path: Path
) -> None:
    path = make_tiny("llama", tmp_path).path
    with running(path) as plain:
        expected = plain.run(PROMPTS, 40, **params)
    with running(path, others, tensor_parallel_size=2, speculative_config=json.dumps(drafting)) as two:
        two.scheduler._draft_length = AlwaysAll(4)
        assert two.run(PROMPTS, 40, **params) == expected
        assert two.run(PROMPTS, 40, **params) == expected
        assert two.scheduler.drafts.tokens > 100
        assert params or two.scheduler.drafts.accepted > 20
