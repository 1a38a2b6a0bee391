"""Stages of one model under everything that an engine does to a sequence: greedy tokens are those of one process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.ranks import OtherRanks, running
from tests.parity.test_families import prompt_of
from tests.parity.tiny import Tiny, make_tiny

COUNT = 16
PROMPTS = [prompt_of(length, seed=20 + length) for length in (2, 45, 9, 31, 17)]


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherRanks]:
    ranks = OtherRanks(tmp_path_factory.mktemp("ranks"), 3)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("qwen2-windows", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def expected(tiny: Tiny) -> list[list[int]]:
    with running(tiny.path) as one:
        return one.run(PROMPTS, COUNT)


def test_two_stages_are_one_model(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    with running(tiny.path, others, pipeline_parallel_size=2) as two:
        assert two.run(PROMPTS, COUNT) == expected
