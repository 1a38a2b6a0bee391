"""Models and heads that draft on a pipeline's last stage: drafts are those of one device, answers those without."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.kvcache.invariants import check
from tests.executor.ranks import OtherRanks, RankRunner, running
from tests.executor.test_rank_drafters import DRAFTS, GREEDY, PENALIZED, SAMPLED, always, check_drafts, num_bytes
from tests.executor.test_rank_speculation import PROMPTS
from tests.parity.tiny import Tiny, make_tiny
from tests.worker.reference_heads import KINDS, fit, make_head, save
from tests.worker.test_draft_model import NowAndThen
from tests.worker.test_mtp import make_with_mtp

CASES = (GREEDY, SAMPLED, PENALIZED)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama", tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherRanks]:
    ranks = OtherRanks(tmp_path_factory.mktemp("ranks"), 1)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def expected(tiny: Tiny) -> list[list[list[int]]]:
    with running(tiny.path) as plain:
        return [plain.run(PROMPTS, 20, **params) for params in CASES]


def staged(path: Path, others: OtherRanks, method: str, drafter: Path | None = None, **settings: Any) -> Any:
    asked = {"method": method, "num_speculative_tokens": DRAFTS}
    more = {} if drafter is None else {"model": str(drafter)}
    settings = {"pipeline_parallel_size": 2, **settings}
    return running(path, others, speculative_config=json.dumps(asked | more), **settings)


def last_stage_bytes(runner: RankRunner) -> int:
    """Of the large model's weights there, as they are loaded."""
    return runner.weight_bytes[0] - num_bytes(runner.executor._rank.worker._model.ropes)  # type: ignore[attr-defined]


def test_a_model_that_drafts_for_itself_is_right(
    tiny: Tiny, others: OtherRanks, expected: list[list[list[int]]]
) -> None:
    """All of it is on the last stage, whatever layers of the large one are there."""
    with staged(tiny.path, others, "draft_model", tiny.path) as two:
        always(two)
        for params, wanted in zip(CASES[:2], expected, strict=False):
            assert two.run(PROMPTS, 20, **params) == wanted
        assert two.scheduler.drafts.tokens > 80
        assert two.scheduler.drafts.share_accepted == 1.0
        assert two.run(PROMPTS, 20, **GREEDY) == expected[0], "prompts are cached"
        assert two.run(PROMPTS, 20, **PENALIZED) == expected[2]
        module = two.executor._rank.worker._drafting._proposer._forward
        assert len(module.layers) == two.facts.spec.num_layers
        assert two.resolved.draft.resolved.weight_bytes == num_bytes(module) - num_bytes(module.ropes)


@pytest.mark.parametrize("same", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_draft_model_misses_steps_and_prompts_in_chunks(
    same: bool, tiny: Tiny, others: OtherRanks, tmp_path: Path
) -> None:
    drafter = tiny.path if same else make_tiny("llama-mqa-tied-biased", tmp_path).path
    settings: dict[str, Any] = {"max_num_batched_tokens": 16, "max_num_seqs": 4, "enable_prefix_caching": False}
    with running(tiny.path, **settings) as plain:
        alone = plain.run(PROMPTS, 30)
    with staged(tiny.path, others, "draft_model", drafter, **settings) as two:
        two.scheduler._draft_length = NowAndThen(DRAFTS, steps=4)
        assert two.run(PROMPTS, 30) == alone
        assert two.scheduler.drafts.tokens > 20
        assert not same or two.scheduler.drafts.share_accepted == 1.0, "it has caught up with what it had missed"


@pytest.mark.parametrize("swap", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["draft_model", pytest.param("eagle3", marks=pytest.mark.slow)])
def test_what_drafts_follows_preempted_sequences(
    method: str, swap: bool, tiny: Tiny, others: OtherRanks, tmp_path: Path
) -> None:
    more = {"swap_space": 0.001, "preemption_mode": "swap"} if swap else {"enable_prefix_caching": False}
    settings: dict[str, Any] = {"num_gpu_blocks_override": 44, "max_num_seqs": 4, "max_num_batched_tokens": 24, **more}
    prompts = [[5 + (place * (1 + number)) % 40 for place in range(12 + 3 * number)] for number in range(8)]
    drafter = tiny.path if method == "draft_model" else save(make_head(method, tiny), method, tmp_path)
    with running(tiny.path) as plain:
        alone = plain.run(prompts, 40)
    with staged(tiny.path, others, method, drafter, **settings) as two:
        assert always(two).run(prompts, 40) == alone
        stats = two.scheduler.stats
        assert (stats.preempted_swap if swap else stats.preempted_recompute) > 1
        # what a sequence has missed is forgotten where it is swapped out between two chunks of its prompt
        assert method != "draft_model" or two.scheduler.drafts.share_accepted > (0.4 if swap else 0.9)
        check(two.scheduler.kv)


@pytest.mark.parametrize("kind", ["eagle3", "eagle", pytest.param("medusa", marks=pytest.mark.slow)])
def test_heads(kind: str, tiny: Tiny, others: OtherRanks, expected: list[list[list[int]]], tmp_path: Path) -> None:
    """EAGLE-3 reads layers of both stages, and what enters the second; EAGLE looks up words, which enter the first."""
    head = make_head(kind, tiny)
    fit(head, [[*prompt, *answer] for prompt, answer in zip(PROMPTS[:2], expected[0], strict=False)], rounds=15)
    with staged(tiny.path, others, kind, save(head, kind, tmp_path)) as two:
        always(two)
        assert check_drafts(two, head, PROMPTS[1], 12) > 3
        for params, wanted in zip(CASES, expected, strict=True):
            assert two.run(PROMPTS, 20, **params) == wanted
        assert two.scheduler.drafts.accepted > 10
        two.scheduler._draft_length = NowAndThen(DRAFTS, steps=4)
        # what is cached of a prompt the head saw with other tokens behind it
        assert check_drafts(two, head, PROMPTS[2][::-1], 24) > 3, "behind steps that it has missed"


@pytest.mark.parametrize("name", ["deepseek_v3", pytest.param("glm4_moe", marks=pytest.mark.slow)])
def test_mtp(name: str, others: OtherRanks, tmp_path: Path) -> None:
    path, mtp = make_with_mtp(name, tmp_path)
    with running(path) as plain:
        alone = plain.run(PROMPTS, 10)
    with staged(path, others, "mtp") as two:
        assert always(two).run(PROMPTS, 10) == alone
        assert check_drafts(two, mtp, PROMPTS[1], 8) > 2


def test_planned_bytes_are_those_that_the_last_stage_loads(tiny: Tiny, others: OtherRanks, tmp_path: Path) -> None:
    """With words that a head borrows, which the last stage has for it alone."""
    with running(tiny.path, others, pipeline_parallel_size=2) as plain:
        without = last_stage_bytes(plain)
    for kind in KINDS:
        path = save(make_head(kind, tiny), kind, tmp_path / kind)
        with staged(tiny.path, others, kind, path) as two:
            proposer = two.executor._rank.worker._drafting._proposer
            module = proposer._heads if kind == "medusa" else proposer._head
            angles = 0 if kind == "medusa" else num_bytes(module.ropes)
            numbers = 0 if getattr(module, "token_map", None) is None else module.token_map.ids.numel() * 4
            words = last_stage_bytes(two) - without
            assert (words > 0) == (kind != "medusa")
            loaded = num_bytes(module) - angles - numbers + words
            assert loaded <= two.drafter.weight_bytes < 1.01 * loaded
