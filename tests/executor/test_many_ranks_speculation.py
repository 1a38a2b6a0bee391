"""Drafts over more ranks than two: more than there are KV heads, stages between the first and the last, and stages of
several ranks."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.executor.ranks import OtherRanks, running
from tests.executor.test_rank_drafters import DRAFTS, GREEDY, PENALIZED, SAMPLED, always, check_drafts
from tests.executor.test_rank_speculation import PROMPTS
from tests.parity.tiny import make_tiny
from tests.scheduler.bookkeeping import AlwaysAll
from tests.worker.reference_heads import make_head, save
from tests.worker.speculation import NGRAM, SUFFIX
from tests.worker.test_draft_model import NowAndThen

THREE, FOUR = {"pipeline_parallel_size": 3}, {"pipeline_parallel_size": 4}
TWO_BY_TWO = {"pipeline_parallel_size": 2, "tensor_parallel_size": 2}


@pytest.mark.slow
@pytest.mark.parametrize("layout", [THREE, FOUR, TWO_BY_TWO])
@pytest.mark.parametrize("drafting", [NGRAM, SUFFIX])
@pytest.mark.parametrize("name", ["llama", "deepseek_v3"])
def test_answers_are_those_without(
    layout: dict[str, Any], drafting: dict[str, Any], name: str, others: OtherRanks, tmp_path: Path
) -> None:
    path = make_tiny(name, tmp_path).path
    cases: list[dict[str, Any]] = [{}, {"temperature": 0.8, "seed": 3}, {"repetition_penalty": 1.2}]
    with running(path) as plain:
        expected = [plain.run(PROMPTS, 40, **params) for params in cases]
    with running(path, others, speculative_config=json.dumps(drafting), **layout) as many:
        for lengths in (AlwaysAll(4), NowAndThen(4)):
            many.scheduler._draft_length = lengths
            for params, wanted in zip(cases, expected, strict=True):
                assert many.run(PROMPTS, 40, **params) == wanted
        assert many.scheduler.drafts.accepted > 10


@pytest.mark.slow
@pytest.mark.parametrize("method", ["draft_model", "eagle", "eagle3", "medusa"])
def test_more_ranks_than_kv_heads(method: str, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny("llama", tmp_path / "large")
    head = tiny.path if method == "draft_model" else save(make_head(method, tiny), method, tmp_path / method)
    asked = {"method": method, "model": str(head), "num_speculative_tokens": DRAFTS}
    with running(tiny.path) as plain:
        expected = [plain.run(PROMPTS, 40, **params) for params in (GREEDY, SAMPLED, PENALIZED)]
    with running(tiny.path, others, tensor_parallel_size=4, speculative_config=json.dumps(asked)) as many:
        always(many)
        for params, wanted in zip((GREEDY, SAMPLED, PENALIZED), expected, strict=True):
            assert many.run(PROMPTS, 40, **params) == wanted
        assert many.scheduler.drafts.tokens > 300


@pytest.mark.slow
@pytest.mark.parametrize("layout", [THREE, FOUR, TWO_BY_TWO])
@pytest.mark.parametrize("method", ["draft_model", "eagle", "eagle3", "medusa"])
def test_models_and_heads_on_the_last_stage(
    method: str, layout: dict[str, Any], others: OtherRanks, tmp_path: Path
) -> None:
    """What EAGLE-3 reads of early layers passes every stage between; of two ranks a stage each has a part of it."""
    tiny = make_tiny("llama", tmp_path / "large")
    head = make_head(method, tiny) if method != "draft_model" else None
    path = tiny.path if head is None else save(head, method, tmp_path / method)
    asked = {"method": method, "model": str(path), "num_speculative_tokens": DRAFTS}
    with running(tiny.path) as plain:
        expected = [plain.run(PROMPTS, 40, **params) for params in (GREEDY, SAMPLED, PENALIZED)]
    with running(tiny.path, others, speculative_config=json.dumps(asked), **layout) as many:
        always(many)
        if head is not None:
            assert check_drafts(many, head, PROMPTS[1], 12) > 3
        assert many.run(PROMPTS, 40, **GREEDY) == expected[0]
        assert head is not None or many.scheduler.drafts.share_accepted > 0.97
        for params, wanted in zip((SAMPLED, PENALIZED), expected[1:], strict=True):
            assert many.run(PROMPTS, 40, **params) == wanted
        assert many.scheduler.drafts.tokens > 300
