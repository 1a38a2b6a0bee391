"""A small model that drafts: the same answers, drafts that are all right where both models are one, and refusals."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs
from safetensors.torch import load_file, save_file

from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError
from quire.core.prompt import Prompt
from quire.engine.loop import EngineLoop
from quire.engine.start import start_loop
from quire.scheduler.draft_length import DraftLength
from tests.ops.cpu.machines import needs_core
from tests.tiny_model import make_text_model
from tests.worker.speculation import Answers, as_on_a_gpu, requests, run, start
from tests.worker.test_speculation import PARAMS, Prepare, as_it_is

NUM_SPECIAL = 3
"""Tokens of the tiny tokenizer that stand for no text."""


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


def in_another_vocabulary(path: Path, folder: Path, more: int) -> Path:
    """The same model with its ordinary tokens in another order, and rows behind them that stand for no token."""
    shutil.copytree(path, folder)
    tokenizer = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    letters = [token for token, number in tokenizer["model"]["vocab"].items() if number >= NUM_SPECIAL]
    random.Random(5).shuffle(letters)
    order = [tokenizer["model"]["vocab"][letter] for letter in letters]
    tokenizer["model"]["vocab"] |= {letter: NUM_SPECIAL + place for place, letter in enumerate(letters)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": config["vocab_size"] + more}))
    tensors = load_file(path / "model.safetensors")
    rows = torch.tensor([*range(NUM_SPECIAL), *order])
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = torch.cat((tensors[name][rows], torch.full((more, tensors[name].shape[1]), 9.0)))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("compute", "prepare"), [("exact", as_on_a_gpu), pytest.param("fast", as_it_is, marks=needs_core)]
)
@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"temperature": 0.9, "top_p": 0.9}])
def test_a_vocabulary_of_its_own_loses_no_draft_that_both_know(
    path: Path, tmp_path: Path, compute: str, prepare: Prepare, params: dict[str, Any]
) -> None:
    small = in_another_vocabulary(path, tmp_path / "small", more=8)
    asked = requests([params] * 4)
    settings = {"cpu_compute": compute, "enable_prefix_caching": False}
    loop = prepare(start(path, drafting(small), **settings))
    assert run(loop, asked) == run(prepare(start(path, None, **settings)), asked)
    assert loop.scheduler.drafts.tokens > 40
    assert loop.scheduler.drafts.share_accepted > 0.97  # the numbers of padding's rows may be drawn here, not there


def test_a_vocabulary_that_shares_nothing_is_refused(path: Path, tmp_path: Path) -> None:
    other = make_text_model(tmp_path / "other").path
    tokenizer = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {f"Ġ{token}": number for token, number in vocabulary.items()}
    tokenizer["model"]["unk_token"] = None
    tokenizer["added_tokens"] = []
    (other / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (other / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"other cannot draft for .* have no token in common; give a smaller model"):
        start(path, drafting(other))


def test_a_large_model_of_windows_alone_has_no_place_for_it(path: Path, tmp_path: Path) -> None:
    windows = make_text_model(tmp_path / "windows", "mistral").path
    with pytest.raises(ConfigError, match="all layers of the large one have windows"):
        start(windows, drafting(path))
