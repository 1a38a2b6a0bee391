"""Drafts by lookup of models that are spread over ranks, side by side or in stages: answers are those without."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.kvcache.invariants import check
from tests.executor.ranks import OtherRanks, running
from tests.parity.tiny import make_tiny
from tests.scheduler.bookkeeping import AlwaysAll
from tests.worker.speculation import NGRAM, SUFFIX

PROMPTS = [[5 + place % (3 + number) for place in range(20 + number)] for number in range(4)]
"""Which repeat themselves, so that there is something to look up."""
SAMPLED = {"temperature": 0.8, "seed": 3, "logprobs": 2}
PENALIZED = {"repetition_penalty": 1.2}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherRanks]:
    ranks = OtherRanks(tmp_path_factory.mktemp("ranks"), 1)
    yield ranks
    ranks.close()


@pytest.mark.parametrize(
    ("layout", "drafting", "params"),
    [
        ("tensor_parallel_size", NGRAM, {}),
        ("tensor_parallel_size", NGRAM, SAMPLED),
        ("tensor_parallel_size", NGRAM, PENALIZED),
        ("tensor_parallel_size", SUFFIX, {}),
        ("pipeline_parallel_size", SUFFIX, {}),
        ("pipeline_parallel_size", NGRAM, SAMPLED),
        pytest.param("pipeline_parallel_size", NGRAM, PENALIZED, marks=pytest.mark.slow),
    ],
)
def test_answers_are_those_without(
    layout: str, drafting: dict[str, Any], params: dict[str, Any], others: OtherRanks, tmp_path: Path
) -> None:
    path = make_tiny("llama", tmp_path).path
    with running(path) as plain:
        expected = plain.run(PROMPTS, 40, **params)
    settings: dict[str, Any] = {layout: 2, "speculative_config": json.dumps(drafting)}
    with running(path, others, **settings) as two:
        two.scheduler._draft_length = AlwaysAll(4)
        assert two.run(PROMPTS, 40, **params) == expected
        assert two.run(PROMPTS, 40, **params) == expected
        assert two.scheduler.drafts.tokens > 100
        assert params or two.scheduler.drafts.accepted > 20


@pytest.mark.parametrize("swap", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_stages_take_back_drafts_of_preempted_sequences(swap: bool, others: OtherRanks, tmp_path: Path) -> None:
    """Prompts come in chunks, and rows change hands while their tokens are on the way back to the first stage."""
    path = make_tiny("llama", tmp_path).path
    more = {"swap_space": 0.001, "preemption_mode": "swap"} if swap else {"enable_prefix_caching": False}
    settings: dict[str, Any] = {"num_gpu_blocks_override": 44, "max_num_seqs": 4, "max_num_batched_tokens": 24, **more}
    prompts = [[5 + place % (3 + number) for place in range(12 + 3 * number)] for number in range(8)]
    with running(path) as plain:
        expected = plain.run(prompts, 40)
    drafting = json.dumps(NGRAM)
    with running(path, others, pipeline_parallel_size=2, speculative_config=drafting, **settings) as two:
        two.scheduler._draft_length = AlwaysAll(4)
        assert two.run(prompts, 40) == expected
        stats = two.scheduler.stats
        assert (stats.preempted_swap if swap else stats.preempted_recompute) > 1
        assert two.scheduler.drafts.accepted > 20
        check(two.scheduler.kv)


class Noting(AlwaysAll):
    """Notes of how many sequences it is asked, and told."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.asked_for: set[int] = set()
        self.observed: set[int] = set()

    def choose(self, decodes: int) -> int:
        self.asked_for.add(decodes)
        return super().choose(decodes)

    def observe(self, decodes: int, *figures: Any, **more: Any) -> None:
        self.observed.add(decodes)


def test_drafts_reach_past_the_end_of_the_context(others: OtherRanks, tmp_path: Path) -> None:
    """Learned positions have no others than the model's own."""
    path = make_tiny("gpt2", tmp_path).path
    settings: dict[str, Any] = {"max_model_len": 64}
    prompts = [prompt[:20] for prompt in PROMPTS]
    with running(path, **settings) as plain:
        expected = plain.run(prompts, 60)
    with running(path, others, pipeline_parallel_size=2, speculative_config=json.dumps(NGRAM), **settings) as two:
        two.scheduler._draft_length = lengths = Noting(4)
        assert two.run(prompts, 60) == expected
        assert len(expected[0]) == 44
        assert 2 in lengths.asked_for & lengths.observed, "half of the sequences have their turn in each step"
