"""Answers with drafts are those without, token by token, whatever requests ask for."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.engine.loop import EngineLoop
from quire.worker import cpu_core
from quire.worker.core_worker import CoreWorker
from tests.ops.cpu.machines import needs_core
from tests.parity.tiny import make_tiny
from tests.rarely import rarely
from tests.tiny_model import make_text_model
from tests.worker.speculation import NGRAM, SUFFIX, as_on_a_gpu, requests, run, start

PARAMS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 1.3},
    {"temperature": 0.6, "seed": 4},
    {"temperature": 0.3, "top_p": 0.8, "frequency_penalty": 0.4},
    {"temperature": 0.4, "top_k": 5, "presence_penalty": -0.5, "n": 2},
    {"temperature": 0.0, "min_tokens": 9, "ignore_eos": False, "stop_token_ids": (5, 6, 7, 8)},
    {"temperature": 0.0, "logit_bias": {9: 4.0, 11: 5.0}},
    {"temperature": 0.0, "allowed_token_ids": (7, 9, 11)},
    {"temperature": 0.0, "max_tokens": 3},
    {"temperature": 0.0, "max_tokens": 1},
]
SIMPLE: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.8, "seed": 4},
    {"temperature": 0.5, "top_p": 0.8},
    {"temperature": 0.6, "top_k": 5, "n": 2},
    {"temperature": 0.0, "max_tokens": 5},
    {"temperature": 0.0, "stop_token_ids": (9, 12, 15)},
]
Prepare = Callable[[EngineLoop], EngineLoop]


def as_it_is(loop: EngineLoop) -> EngineLoop:
    return loop


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("llama")).path


def make_compare(
    path: Path, prepare: Prepare, asked: list[Request], drafting: dict[str, Any] = NGRAM, **settings: Any
) -> EngineLoop:
    """Answers with drafts and without are the same."""
    plain = run(prepare(start(path, None, **settings)), asked)
    loop = prepare(start(path, drafting, **settings))
    assert run(loop, asked) == plain
    scheduler = loop.scheduler
    assert scheduler.drafts.tokens >= scheduler.drafts.accepted
    return loop


@pytest.mark.parametrize(
    ("compute", "prepare"),
    [("exact", as_it_is), ("exact", as_on_a_gpu), pytest.param("fast", as_it_is, marks=needs_core)],
)
def test_every_kind_of_request_is_answered_as_without(path: Path, compute: str, prepare: Prepare) -> None:
    scheduler = make_compare(path, prepare, requests(PARAMS), cpu_compute=compute).scheduler
    assert scheduler.drafts.accepted > 20, "drafts are right now and then"
    assert scheduler.drafts.tokens > scheduler.drafts.accepted


@pytest.mark.parametrize(
    ("name", "prepare"),
    rarely(
        product(["mistral", "gpt2", "gemma3", "llama-rope-dynamic", "deepseek_v2"], [as_it_is, as_on_a_gpu]), every=3
    ),
)
def test_windows_learned_positions_and_angles_that_change(name: str, prepare: Prepare, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path / name)
    asked = requests([{"temperature": 0.0}, {"temperature": 0.4}] * 3, length=90)
    longest = [Request(id="all", prompt=Prompt((5, 6) * 40), params=SamplingParams(temperature=0.0, ignore_eos=True))]
    settings = {"cpu_compute": "exact", "max_model_len": 120, "max_num_seqs": 4, "num_gpu_blocks_override": 700}
    loop = make_compare(tiny.path, prepare, [*asked, *longest], **settings)
    assert loop.scheduler.drafts.accepted > 10


@pytest.mark.parametrize("prepare", [as_it_is, as_on_a_gpu])
@pytest.mark.parametrize("drafting", [NGRAM, SUFFIX])
def test_preempted_sequences_go_on_as_they_would(path: Path, prepare: Prepare, drafting: dict[str, Any]) -> None:
    asked = requests(PARAMS[:5] * 2, length=40)
    settings = {"cpu_compute": "exact", "num_gpu_blocks_override": 34, "max_num_seqs": 6, "enable_prefix_caching": True}
    loop = make_compare(path, prepare, asked, drafting, **settings)
    assert loop.scheduler.stats.preempted_recompute > 2
    assert loop.scheduler.drafts.accepted > 10


@pytest.mark.parametrize("prepare", [as_it_is, as_on_a_gpu])
@pytest.mark.parametrize("drafting", [NGRAM, SUFFIX])
def test_swapped_sequences_go_on_as_they_would(path: Path, prepare: Prepare, drafting: dict[str, Any]) -> None:
    settings = {"num_gpu_blocks_override": 34, "max_num_seqs": 6, "swap_space": 0.001, "preemption_mode": "swap"}
    asked = requests(PARAMS[:5] * 2, length=40)
    loop = make_compare(path, prepare, asked, drafting, cpu_compute="exact", **settings)
    assert loop.scheduler.stats.preempted_swap > 2
    assert loop.scheduler.drafts.accepted > 10


@needs_core
@pytest.mark.parametrize("asked", [NGRAM, SUFFIX])
def test_the_native_core_alone_drafts_too_and_torch_takes_over(
    asked: dict[str, Any], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_core, "_SMALLEST_KEPT", 0)
    simple = [*SIMPLE, {"temperature": 0.3, "repetition_penalty": 1.2}]
    more = [*SIMPLE, {"temperature": 0.3, "prompt_logprobs": 1}, *SIMPLE]
    run(start(path, None), requests(SIMPLE[:1]))  # leaves a record
    plain = run(start(path, None), requests(simple))
    loop = start(path, asked)
    assert isinstance(loop.executor._worker, CoreWorker)  # type: ignore[attr-defined]
    assert run(loop, requests(simple)) == plain
    assert loop.executor._worker._whole is None  # type: ignore[attr-defined]
    assert loop.scheduler.drafts.accepted > 10
    expected = run(start(path, None), requests(more))
    loop = start(path, asked)
    assert run(loop, requests(more)) == expected
    assert loop.executor._worker._whole is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize("prepare", [as_it_is, as_on_a_gpu])
def test_every_token_has_its_logprobs(path: Path, prepare: Prepare) -> None:
    params: list[dict[str, Any]] = [
        {"temperature": 0.0, "logprobs": 2},
        {"temperature": 0.5, "logprobs": 0, "frequency_penalty": 0.3},
        {"temperature": 0.0},
        {"temperature": 0.5, "logprobs": 1, "logprob_token_ids": (7, 9)},
    ]

    def told(drafting: dict[str, Any] | None) -> dict[str, list[Any]]:
        loop = prepare(start(path, drafting, cpu_compute="exact"))
        found: dict[str, list[Any]] = {}
        for request in requests(params):
            loop.add(request)
        while loop.has_work:
            update, _ = loop.step()
            for seq in {seq.id: seq for seq in update.sequences}.values():
                count = sum(seq is other for other in update.sequences)
                found.setdefault(seq.request.id, []).extend(update.logprobs.get(seq.id, [])[:count])
        return found

    plain, drafted = told(None), told(NGRAM)
    assert [len(found) for found in plain.values()] == [24, 24, 0, 24]
    for name, positions in plain.items():
        for one, other in zip(positions, drafted[name], strict=True):
            assert (one.token, one.rank) == (other.token, other.rank)
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert [token for token, _ in one.top] == [token for token, _ in other.top]
            assert dict(one.named) == pytest.approx(dict(other.named), abs=1e-4)


def test_beams_are_searched_token_by_token(path: Path) -> None:
    from quire.engine.beam_search import BeamSearchParams, beam_search

    asked = BeamSearchParams(beam_width=3, max_tokens=12)
    prompts = [(5, 6, 5, 6, 5, 6), (9, 8, 9, 8)]

    def found(drafting: dict[str, Any] | None) -> list[list[list[int]]]:
        beams = beam_search(start(path, drafting, cpu_compute="exact"), prompts, asked, (2,))
        return [[list(beam.tokens) for beam in of_prompt] for of_prompt in beams]

    assert found(NGRAM) == found(None)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["ngram", "suffix", "draft_model"])
def test_on_a_gpu(name: str, tmp_path: Path) -> None:
    """Graphs, two steps in flight, and sums whose order does not depend on the batch."""
    path = make_text_model(tmp_path / "model").path
    methods = {"ngram": NGRAM, "suffix": SUFFIX, "draft_model": {"method": "draft_model", "model": str(path)}}
    settings = {"dtype": "bfloat16", "cpu_threads": None, "block_size": 16, "max_num_seqs": 8, "batch_invariant": True}
    plain = run(start(path, None, **settings), requests(PARAMS, length=60))
    loop = start(path, methods[name], **settings)
    assert run(loop, requests(PARAMS, length=60)) == plain
    assert run(loop, requests(PARAMS, length=60)) == plain, "by graphs that are captured now"
    assert loop.scheduler.drafts.accepted > 20


@pytest.mark.parametrize("prepare", [as_it_is, as_on_a_gpu])
def test_what_was_said_before_is_said_again(path: Path, prepare: Prepare) -> None:
    """The same requests once more have all their drafts from the answers of the first time."""
    asked = requests(PARAMS[:3])
    again = [structs.replace(request, id=f"{request.id} again") for request in asked]
    plain = run(prepare(start(path, None, cpu_compute="exact")), [*asked, *again])
    loop = prepare(start(path, SUFFIX, cpu_compute="exact"))
    assert run(loop, asked) == {key: tokens for key, tokens in plain.items() if "again" not in key[0]}
    first = loop.scheduler.drafts
    assert run(loop, again) == {key: tokens for key, tokens in plain.items() if "again" in key[0]}
    second = loop.scheduler.drafts - first
    assert second.mean_accepted > 2 * first.mean_accepted
    assert second.share_accepted > 0.5
