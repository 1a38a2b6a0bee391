"""A small model that drafts: the same answers, drafts that are all right where both models are one, and refusals."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError
from quire.core.prompt import Prompt
from quire.engine.draft_plan import plan_checked_drafter
from quire.engine.loop import EngineLoop
from quire.engine.start import start_loop
from quire.executor.inline import local_device_facts
from quire.models.loading.header import read_model_facts
from quire.scheduler.draft_length import DraftLength
from tests.ops.cpu.machines import needs_core
from tests.tiny_model import make_text_model
from tests.worker.speculation import Answers, as_on_a_gpu, requests, run, start
from tests.worker.test_speculation import PARAMS, Prepare, as_it_is


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text_model(tmp_path_factory.mktemp("large")).path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of another shape, and the same vocabulary."""
    return make_text_model(tmp_path_factory.mktemp("small"), "llama-mqa-tied-biased").path


def drafting(path: Path, drafts: int = 3) -> dict[str, Any]:
    return {"method": "draft_model", "model": str(path), "num_speculative_tokens": drafts}


@pytest.mark.parametrize(
    ("compute", "prepare"),
    [("exact", as_it_is), ("exact", as_on_a_gpu), pytest.param("fast", as_it_is, marks=needs_core)],
)
def test_every_kind_of_request_is_answered_as_without(path: Path, small: Path, compute: str, prepare: Prepare) -> None:
    plain = run(prepare(start(path, None, cpu_compute=compute)), requests(PARAMS))
    loop = prepare(start(path, drafting(small), cpu_compute=compute))
    assert run(loop, requests(PARAMS)) == plain
    assert loop.scheduler.drafts.tokens > 100


@pytest.mark.parametrize("prepare", [as_it_is, as_on_a_gpu])
@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"temperature": 0.9, "top_p": 0.9}])
def test_a_model_that_drafts_for_itself_is_always_right(path: Path, params: dict[str, Any], prepare: Prepare) -> None:
    loop = prepare(start(path, drafting(path), cpu_compute="exact", enable_prefix_caching=False))
    run(loop, requests([params] * 4))
    assert loop.scheduler.drafts.tokens > 40
    assert loop.scheduler.drafts.share_accepted == 1.0


class NowAndThen(DraftLength):
    """Drafts in `steps` steps, then none in five."""

    def __init__(self, most: int, steps: int = 2) -> None:
        super().__init__(most)
        self._steps = steps
        self._number = 0

    def choose(self, decodes: int) -> int:
        self._number += 1
        return self.most if self._number % (5 + self._steps) < self._steps else 0


@pytest.mark.parametrize("prepare", [as_it_is, as_on_a_gpu])
def test_it_catches_up_with_what_it_has_missed(path: Path, prepare: Prepare) -> None:
    """Behind steps without drafts, and behind prompts that were computed in such steps."""

    def answers(asked: dict[str, Any] | None) -> tuple[Answers, EngineLoop]:
        loop = prepare(start(path, asked, cpu_compute="exact", enable_prefix_caching=False))
        if asked is not None:
            loop.scheduler._draft_length = NowAndThen(3)
        return run(loop, requests([{"temperature": 0.0}] * 3, length=60)), loop

    plain, _ = answers(None)
    found, loop = answers(drafting(path))
    assert found == plain
    assert loop.scheduler.drafts.accepted > 10
    assert loop.scheduler.drafts.share_accepted == 1.0


def test_it_sees_prompts_that_take_several_steps(path: Path) -> None:
    settings = {"cpu_compute": "exact", "enable_prefix_caching": False, "max_num_batched_tokens": 16, "max_num_seqs": 4}
    loop = start(path, drafting(path), **settings)
    long = Prompt(tuple(5 + place * place % 190 for place in range(60)))
    run(loop, [structs.replace(request, prompt=long) for request in requests([{"temperature": 0.0}])])
    assert loop.scheduler.drafts.tokens > 10
    assert loop.scheduler.drafts.share_accepted == 1.0


def test_it_sees_what_it_has_missed_where_drafts_were_planned_that_nobody_had(path: Path) -> None:
    """As on GPUs and over ranks, where the host does not know; behind steps without proposals, beside prompts."""
    settings = {"cpu_compute": "exact", "enable_prefix_caching": False, "max_num_batched_tokens": 16, "max_num_seqs": 4}
    loop = start(path, drafting(path), **settings)
    loop.executor._worker._drafting._is_read_first = False  # type: ignore[attr-defined]
    loop.scheduler._draft_length = NowAndThen(3)
    long = [Prompt(tuple(5 + place * (place + number) % 190 for place in range(30))) for number in range(4)]
    asked = requests([{"temperature": 0.0}] * 4, length=30)
    run(loop, [structs.replace(request, prompt=prompt) for request, prompt in zip(asked, long, strict=True)])
    assert loop.scheduler.drafts.accepted > 10
    assert loop.scheduler.drafts.share_accepted == 1.0


@pytest.mark.parametrize("swap", [False, True])
def test_its_kv_follows_preempted_sequences(path: Path, swap: bool) -> None:
    more = {"swap_space": 0.001, "preemption_mode": "swap"} if swap else {"enable_prefix_caching": False}
    settings = {"num_gpu_blocks_override": 34, "max_num_seqs": 6, "cpu_compute": "exact"} | more
    asked = requests([{"temperature": 0.0}] * 8, length=40)
    plain = run(start(path, None, **settings), asked)
    loop = start(path, drafting(path), **settings)
    assert run(loop, asked) == plain
    stats = loop.scheduler.stats
    assert (stats.preempted_swap if swap else stats.preempted_recompute) > 1
    assert loop.scheduler.drafts.share_accepted > 0.95  # a swapped sequence comes back without drafts of its own


def test_blocks_have_room_for_both_models(path: Path, small: Path) -> None:
    both = start_loop(EngineConfig.from_flat(model=str(path), speculative_config=drafting(small)), path).resolved
    alone = start_loop(EngineConfig.from_flat(model=str(path)), path).resolved
    assert both.draft is not None
    own = both.draft.resolved.kv
    assert both.kv.block_bytes == alone.kv.block_bytes + own.block_bytes
    assert (own.num_blocks, own.block_size) == (both.kv.num_blocks, both.kv.block_size)
    assert both.kv.num_blocks < alone.kv.num_blocks


def test_another_vocabulary_is_refused(path: Path, tmp_path: Path) -> None:
    other = make_text_model(tmp_path / "other").path
    tokenizer = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    one, two = list(vocabulary)[7:9]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"whose token \d+ is .* must have the same tokenizer"):
        start(path, drafting(other))
    facts = read_model_facts(str(path))
    wider = replace(facts, spec=replace(facts.spec, vocab_size=facts.spec.vocab_size + 8))
    asked = EngineConfig.from_flat(model=str(path), speculative_config=drafting(path))
    with pytest.raises(ConfigError, match=r"with 199 tokens, and .* has 207; .* must have the same vocabulary"):
        plan_checked_drafter(asked, path, wider, local_device_facts())


def test_a_large_model_of_windows_alone_has_no_place_for_it(path: Path, tmp_path: Path) -> None:
    windows = make_text_model(tmp_path / "windows", "mistral").path
    with pytest.raises(ConfigError, match="all layers of the large one have windows"):
        start(windows, drafting(path))
