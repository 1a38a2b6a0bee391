"""Models and heads that draft for a model over ranks: drafts are those of one device, answers those without drafts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from safetensors.torch import load_file
from torch import nn

from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.kvcache.invariants import check
from quire.worker.device import cpu_facts
from quire.worker.start_rank import resolve_other_rank
from tests.executor.ranks import OtherRanks, RankRunner, running
from tests.executor.test_rank_speculation import PROMPTS
from tests.parity.tiny import Tiny, make_tiny
from tests.scheduler.bookkeeping import AlwaysAll
from tests.worker.reference_heads import KINDS, fit, make_head, save
from tests.worker.test_draft_model import NowAndThen
from tests.worker.test_mtp import make_with_mtp

DRAFTS = 3
GREEDY: dict[str, Any] = {}
SAMPLED = {"temperature": 0.8, "seed": 3, "logprobs": 2}
PENALIZED = {"repetition_penalty": 1.2, "frequency_penalty": 0.3}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama", tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherRanks]:
    ranks = OtherRanks(tmp_path_factory.mktemp("ranks"), 1)
    yield ranks
    ranks.close()


class Drafting(Protocol):
    """As one of `reference_heads.py` or `test_mtp.py`."""

    def drafts(self, tokens: list[int], count: int) -> list[int]: ...


def two_ranks(path: Path, others: OtherRanks, method: str, head: Path | None = None, **settings: Any) -> Any:
    """`head` is the model or head that drafts; of its settings, those that are not the engine's."""
    asked: dict[str, Any] = {"method": method, "num_speculative_tokens": DRAFTS}
    if head is not None:
        asked["model"] = str(head)
    if "whole" in settings:
        asked["draft_tensor_parallel_size"] = 1 if settings.pop("whole") else 2
    spread: dict[str, Any] = {} if "data_parallel_size" in settings else {"tensor_parallel_size": 2}
    return running(path, others, speculative_config=json.dumps(asked), **spread, **settings)


def always(runner: RankRunner) -> RankRunner:
    for scheduler in getattr(runner.scheduler, "_ranks", [runner.scheduler]):
        scheduler._draft_length = AlwaysAll(DRAFTS)
    return runner


def check_drafts(runner: RankRunner, reference: Drafting, prompt: list[int], steps: int) -> int:
    """Compare what stands behind the last token of a greedy answer with what a whole head says there; returns how often
    there was something to compare."""
    params = SamplingParams(max_tokens=steps, temperature=0.0, ignore_eos=True, detokenize=False)
    runner.loop.add(Request(id="compared", prompt=Prompt(tuple(prompt)), params=params))
    worker, compared = runner.executor._rank.worker, 0  # type: ignore[attr-defined]
    states, ready = worker._rows.states, worker._drafting.rows.ready
    while runner.loop.has_work:
        runner.loop.step()
        for sequence in runner.scheduler.running:
            if int(ready[sequence.row]):
                known = int(states.num_computed[sequence.row]) + 1
                tokens = states.tokens[sequence.row].tolist()
                assert tokens[known : known + DRAFTS] == reference.drafts(tokens[:known], DRAFTS)
                compared += 1
    return compared


def num_bytes(module: nn.Module) -> int:
    return sum(each.nbytes for each in (*module.parameters(), *module.buffers()))


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_model_that_drafts_for_itself_is_right(whole: bool, tiny: Tiny, others: OtherRanks) -> None:
    """Greedy, sampled and with penalties, of which drafts know nothing; the second time prompts are cached."""
    with running(tiny.path) as plain:
        expected = [plain.run(PROMPTS, 20, **params) for params in (GREEDY, SAMPLED, PENALIZED)]
    with two_ranks(tiny.path, others, "draft_model", tiny.path, whole=whole) as two:
        always(two)
        for params, wanted in zip((GREEDY, SAMPLED), expected, strict=False):
            assert two.run(PROMPTS, 20, **params) == wanted
        assert two.scheduler.drafts.tokens > 80
        assert two.scheduler.drafts.share_accepted > 0.97, "sums over ranks may turn a near tie"
        assert two.run(PROMPTS, 20, **GREEDY) == expected[0]
        assert two.scheduler.drafts.share_accepted > 0.9
        assert two.run(PROMPTS, 20, **PENALIZED) == expected[2]
        own = two.resolved.draft.resolved
        assert (own.tensor_parallel_size == 1) == whole
        assert own.kv.bytes_per_token == (2 if whole else 1) * two.resolved.kv.bytes_per_token / (3 if whole else 2)
        module = two.executor._rank.worker._drafting._proposer._forward
        assert own.weight_bytes == num_bytes(module) - num_bytes(module.ropes)


@pytest.mark.slow
def test_a_draft_model_of_another_shape_misses_steps_and_prompts_in_chunks(
    tiny: Tiny, others: OtherRanks, tmp_path: Path
) -> None:
    small = make_tiny("llama-mqa-tied-biased", tmp_path).path
    settings: dict[str, Any] = {"max_num_batched_tokens": 16, "max_num_seqs": 4}
    with running(tiny.path, **settings) as plain:
        expected = plain.run(PROMPTS, 30)
    for path in (small, tiny.path):
        with two_ranks(tiny.path, others, "draft_model", path, enable_prefix_caching=False, **settings) as two:
            two.scheduler._draft_length = NowAndThen(DRAFTS)
            assert two.run(PROMPTS, 30) == expected
            assert two.scheduler.drafts.tokens > 20
    assert two.scheduler.drafts.share_accepted > 0.97, "it has caught up with what it had missed"


@pytest.mark.slow
@pytest.mark.parametrize("swap", [False, True])
def test_what_drafts_follows_preempted_sequences(swap: bool, tiny: Tiny, others: OtherRanks) -> None:
    more = {"swap_space": 0.001, "preemption_mode": "swap"} if swap else {"enable_prefix_caching": False}
    settings: dict[str, Any] = {"num_gpu_blocks_override": 34, "max_num_seqs": 6, **more}
    prompts = [[5 + (place * (1 + number)) % 40 for place in range(8 + number)] for number in range(6)]
    with running(tiny.path) as plain:
        expected = plain.run(prompts, 40)
    with two_ranks(tiny.path, others, "draft_model", tiny.path, **settings) as two:
        assert always(two).run(prompts, 40) == expected
        stats = two.scheduler.stats
        assert (stats.preempted_swap if swap else stats.preempted_recompute) > 1
        assert two.scheduler.drafts.share_accepted > 0.9
        check(two.scheduler.kv)


@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        ("eagle3", False),
        pytest.param("eagle3", True, marks=pytest.mark.slow),
        pytest.param("eagle", False, marks=pytest.mark.slow),
        pytest.param("eagle", True, marks=pytest.mark.slow),
        pytest.param("medusa", False, marks=pytest.mark.slow),
        pytest.param("medusa", True, marks=pytest.mark.slow),
    ],
)
def test_heads(kind: str, whole: bool, tiny: Tiny, others: OtherRanks, tmp_path: Path) -> None:
    with running(tiny.path) as plain:
        expected = [plain.run(PROMPTS, 20, **params) for params in (GREEDY, SAMPLED, PENALIZED)]
    head = make_head(kind, tiny)
    fit(head, [[*prompt, *answer] for prompt, answer in zip(PROMPTS[:2], expected[0], strict=False)], rounds=15)
    with two_ranks(tiny.path, others, kind, save(head, kind, tmp_path), whole=whole) as two:
        always(two)
        assert check_drafts(two, head, PROMPTS[1], 12) > 3
        for params, wanted in zip((GREEDY, SAMPLED, PENALIZED), expected, strict=True):
            assert two.run(PROMPTS, 20, **params) == wanted
        assert two.scheduler.drafts.accepted > 10
        planned = two.resolved.head
        assert planned.tensor_parallel_size == (1 if whole else 2)
        two.scheduler._draft_length = NowAndThen(DRAFTS)
        assert check_drafts(two, head, PROMPTS[2], 24) > 3, "behind steps that it has missed"


@pytest.mark.parametrize(
    ("name", "whole_experts"),
    [
        ("deepseek_v3", True),
        pytest.param("deepseek_v3", False, marks=pytest.mark.slow),
        pytest.param("glm4_moe", False, marks=pytest.mark.slow),
        pytest.param("glm4_moe", True, marks=pytest.mark.slow),
    ],
)
def test_mtp(name: str, whole_experts: bool, others: OtherRanks, tmp_path: Path) -> None:
    """Its experts are cut, or spread, as the model's are."""
    path, mtp = make_with_mtp(name, tmp_path)
    with running(path) as plain:
        expected = plain.run(PROMPTS, 10)
    with two_ranks(path, others, "mtp", enable_expert_parallel=whole_experts) as two:
        assert always(two).run(PROMPTS, 10) == expected
        assert check_drafts(two, mtp, PROMPTS[1], 8) > 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mtp", "draft_model"])
def test_ranks_that_attend_alone_draft_each_for_their_own(
    method: str, tiny: Tiny, others: OtherRanks, tmp_path: Path
) -> None:
    """Each has the whole of what drafts."""
    path, _ = make_with_mtp("deepseek_v3", tmp_path)
    with running(path) as plain:
        expected = [plain.run(PROMPTS, 12, **params) for params in (GREEDY, SAMPLED)]
    head = tiny.path if method == "draft_model" else None
    with two_ranks(path, others, method, head, data_parallel_size=2, enable_expert_parallel=True) as two:
        always(two)
        for params, wanted in zip((GREEDY, SAMPLED), expected, strict=True):
            assert two.run(PROMPTS, 12, **params) == wanted
        assert all(each.drafts.tokens > 10 for each in two.scheduler._ranks)


def test_other_hosts_must_have_the_same_files(tiny: Tiny, tmp_path: Path) -> None:
    path = save(make_head("eagle", tiny), "eagle", tmp_path)
    drafting = json.dumps({"method": "eagle", "model": str(path)})
    asked = EngineConfig.from_flat(model=str(tiny.path), tensor_parallel_size=2, speculative_config=drafting)
    large, head = (
        sum(each.numel() for each in load_file(folder / "model.safetensors").values()) for folder in (tiny.path, path)
    )
    found, resolved = resolve_other_rank(tiny.path, asked, cpu_facts(), file_bytes=4 * (large + head))
    assert (found, resolved.head is None) == (tiny.path, False)
    with pytest.raises(
        ConfigError, match=rf"with what drafts for it \({path}\) on this host has .* rank 0 has 7; give"
    ):
        resolve_other_rank(tiny.path, asked, cpu_facts(), file_bytes=7)


def test_planned_bytes_are_those_that_a_rank_loads(tiny: Tiny, others: OtherRanks, tmp_path: Path) -> None:
    """Of every head, but for the map of its tokens, which is held in 8 bytes each."""
    for kind in KINDS:
        path = save(make_head(kind, tiny), kind, tmp_path / kind)
        with two_ranks(tiny.path, others, kind, path) as two:
            proposer = two.executor._rank.worker._drafting._proposer
            module = proposer._heads if kind == "medusa" else proposer._head
            angles = 0 if kind == "medusa" else num_bytes(module.ropes)
            numbers = 0 if getattr(module, "token_map", None) is None else module.token_map.ids.numel() * 4
            loaded = num_bytes(module) - angles - numbers
            assert loaded <= two.drafter.weight_bytes < 1.01 * loaded
            features = two.resolved.head.features.bytes_per_token
            own = 0 if two.resolved.head.kv is None else two.resolved.head.kv.bytes_per_token
            assert two.resolved.kv.bytes_per_token == 4 * 2 * 16 * 4 + features + own
            assert (features, own) == (64 * 4, 0 if kind == "medusa" else 2 * 16 * 4)
