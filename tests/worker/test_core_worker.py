"""A start from what an earlier one kept: the same tokens, without torch, until a request needs it."""

import os
import subprocess
import sys
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quire.config.resolved import Resolved
from quire.core.pooling_params import PoolingParams
from quire.core.prompt import Prompt
from quire.core.request import NO_ANSWER, Request
from quire.core.sampling_params import SamplingParams
from quire.engine.assemble import make_scheduler
from quire.engine.loop import EngineLoop
from quire.executor.inline import start_inline
from quire.kvcache.invariants import check
from quire.worker import core_steps, cpu_core
from quire.worker.core_record import load_record, save_record
from quire.worker.core_worker import CoreWorker
from quire.worker.plain_steps import PlainSteps
from tests.ops.cpu.machines import needs_core
from tests.parity.tiny import CASES, make_tiny
from tests.tiny_model import make_text_model
from tests.worker.speculation import NGRAM, SUFFIX
from tests.worker.speculation import requests as repeating
from tests.worker.speculation import start as start_drafting
from tests.worker.test_cpu_core import resolved_for

pytestmark = needs_core

PLAIN: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.9},
    {"temperature": 1.1, "top_k": 9, "seed": -4},
    {"temperature": 0.8, "top_p": 0.7, "n": 3},
    {"temperature": 1.3, "min_p": 0.1, "top_p": 0.9, "seed": 5, "stop_token_ids": (3,)},
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where packed weights and records are kept; tiny ones too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_core, "_SMALLEST_KEPT", 0)
    return tmp_path / "cache" / "quire" / "packed"


WISHES: list[dict[str, Any]] = [
    {"temperature": 0.7, "repetition_penalty": 1.5},
    {"temperature": 0.0, "logprobs": 2},
    {"temperature": 0.0, "presence_penalty": 0.7, "frequency_penalty": 0.4, "logprobs": 0},
    {"temperature": 0.8, "logit_bias": {9: 4.0, 11: 3.0}, "top_p": 0.8, "n": 2},
    {"temperature": 0.0, "allowed_token_ids": (7, 9, 11, 13), "frequency_penalty": 1.0},
    {"temperature": 0.9, "min_tokens": 9, "stop_token_ids": (5, 6, 7, 8), "ignore_eos": False},
    {"temperature": 1.0, "best_of": 3, "logprobs": 1, "logprob_token_ids": (4, 8)},
]
"""What the core draws, too."""


def resolved(path: Path) -> Resolved:
    return resolved_for(path, max_num_seqs=4, max_num_batched_tokens=16, block_size=4, replicas=1, cpu_threads=1)


def start(path: Path) -> EngineLoop:
    settings = resolved(path)
    return EngineLoop(make_scheduler(settings), start_inline(path, settings, seed=7))


def worker_of(loop: EngineLoop) -> Any:
    return loop.executor._worker  # type: ignore[attr-defined]


def requests(params: list[dict[str, Any]], length: int = 12) -> list[Request]:
    """Prompts of several lengths, some longer than a step, with a beginning in common."""
    return [
        Request(
            id=f"r{number}",
            prompt=Prompt(tuple(5 + place % 7 for place in range(9 + 5 * (number % 3)))),
            params=SamplingParams(**{"max_tokens": length, "ignore_eos": True, "detokenize": False} | given),
        )
        for number, given in enumerate(params)
    ]


def run(loop: EngineLoop, asked: list[Request]) -> dict[tuple[str, int], list[int]]:
    """All tokens of each sequence; a request is added before each of the first steps."""
    tokens: dict[tuple[str, int], list[int]] = {}
    waiting = list(asked)
    while waiting or loop.has_work:
        if waiting:
            loop.add(waiting.pop(0))
        update, ended = loop.step()
        check(loop.scheduler.kv)
        assert not any(seq.failure for seq in ended)
        for seq, token in zip(update.sequences, update.tokens, strict=True):
            tokens.setdefault((seq.request.id, seq.index), []).append(token)
    return tokens


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_family_that_is_kept_gives_the_same_tokens(name: str, tmp_path: Path, cache: Path) -> None:
    path = make_tiny(name, tmp_path / "model").path
    if not resolved(path).cpu_core:
        pytest.skip("torch's operations compute it")
    first = start(path)
    assert not isinstance(worker_of(first), CoreWorker)
    expected = run(first, requests(PLAIN))
    second = start(path)
    kept = isinstance(worker_of(second), CoreWorker)
    assert kept == any(file.suffix == ".record" for file in cache.iterdir())
    assert run(second, requests(PLAIN)) == expected


@pytest.mark.parametrize(
    "name", ["llama", "llama-mqa-tied-biased", "qwen2", "gemma3", "gpt_oss", "deepseek_v2-lite", "deepseek_v3"]
)
def test_common_families_are_kept(name: str, tmp_path: Path) -> None:
    path = make_tiny(name, tmp_path / "model").path
    run(start(path), requests(PLAIN[:1]))
    assert isinstance(worker_of(start(path)), CoreWorker)


@pytest.mark.parametrize("name", ["gpt2", "llama4"])  # learned positions are added, temperatures multiply queries
def test_what_a_record_cannot_say_is_not_kept(name: str, tmp_path: Path, cache: Path) -> None:
    path = make_tiny(name, tmp_path / "model").path
    run(start(path), requests(PLAIN[:1]))
    assert [file.suffix for file in cache.iterdir()] == [".packed"]


def test_a_request_that_needs_torch_takes_over_the_same_memory(tmp_path: Path) -> None:
    path = make_text_model(tmp_path / "model").path
    asked = requests([*WISHES[:3], *PLAIN, {"temperature": 0.0, "prompt_logprobs": 2}, *WISHES], 20)
    expected = run(start(path), asked)
    loop = start(path)
    worker = worker_of(loop)
    assert isinstance(worker, CoreWorker)
    assert run(loop, asked) == expected
    assert worker._whole is not None
    assert run(loop, requests(PLAIN)) == run(start(path), requests(PLAIN))


def test_wishes_are_granted_without_torch_as_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tokens and logprobs."""
    path = make_text_model(tmp_path / "model").path
    asked = requests([*WISHES, *PLAIN, *WISHES], 20)
    with monkeypatch.context() as patch:
        patch.setattr(core_steps, "can_draw", lambda params: False)
        expected = run_with_logprobs(start(path), asked)
    loop = start(path)
    worker = worker_of(loop)
    assert isinstance(worker, CoreWorker)
    assert run_with_logprobs(loop, asked) == expected
    assert worker._whole is None


def test_whoever_draws_knows_what_was_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole worker takes over in the middle of answers whose tokens all count, and its steps go now this way, now
    that way."""
    path = make_text_model(tmp_path / "model").path
    counting: dict[str, Any] = {"temperature": 0.0, "frequency_penalty": 2.0, "logprobs": 1, "max_tokens": 60}
    needs_torch = {"temperature": 0.0, "prompt_logprobs": 0, "max_tokens": 9}
    asked = requests([counting, counting, counting, *[needs_torch] * 4])
    with monkeypatch.context() as patch:
        patch.setattr(core_steps, "can_draw", lambda params: False)
        expected = run_with_logprobs(start(path), asked, between=9)
    loop = start(path)
    worker = worker_of(loop)
    assert isinstance(worker, CoreWorker)
    taken = []
    whole = PlainSteps.run
    monkeypatch.setattr(PlainSteps, "run", lambda *given: taken.append(result := whole(*given)) or result)
    assert run_with_logprobs(loop, asked, between=9) == expected
    assert sum(result is not None for result in taken) > 9
    assert sum(result is None for result in taken) > 9


def run_with_logprobs(
    loop: EngineLoop, asked: list[Request], between: int = 0
) -> dict[tuple[str, int], list[tuple[int, Any]]]:
    """As `run`, with logprobs beside the tokens; so many steps go by between requests."""
    found: dict[tuple[str, int], list[tuple[int, Any]]] = {}
    waiting = list(asked)
    steps = 0
    while waiting or loop.has_work:
        if waiting and steps % (1 + between) == 0:
            loop.add(waiting.pop(0))
        steps += 1
        update, ended = loop.step()
        assert not any(seq.failure for seq in ended)
        unread = {id: list(each) for id, each in update.logprobs.items()}
        for seq, token in zip(update.sequences, update.tokens, strict=True):
            reported = unread.get(seq.id)
            found.setdefault((seq.request.id, seq.index), []).append((token, reported.pop(0) if reported else None))
    return found


@pytest.mark.parametrize("method", [NGRAM, SUFFIX])
def test_wishes_are_granted_with_drafts_as_without(method: dict[str, Any], tmp_path: Path) -> None:
    path = make_text_model(tmp_path / "model").path
    asked = repeating([*WISHES, *PLAIN, *WISHES], length=40)
    settings: dict[str, Any] = {"max_num_seqs": 4, "dtype": "float32"}
    expected = run_with_logprobs(start_drafting(path, None, **settings), asked)
    loop = start_drafting(path, method, **settings)
    assert isinstance(worker_of(loop), CoreWorker)
    assert run_with_logprobs(loop, asked) == expected
    assert worker_of(loop)._whole is None
    assert loop.scheduler.drafts.accepted > 20


def test_requests_wait_for_torch_outside_every_step(tmp_path: Path) -> None:
    path = make_text_model(tmp_path / "model").path
    run(start(path), requests(PLAIN[:1]))
    worker = worker_of(start(path))
    [plain, penalized, reported] = requests([{"top_k": 3}, {"presence_penalty": 0.5}, {"prompt_logprobs": 1}])
    assert worker.prepare(plain) is None
    assert worker.prepare(penalized) is None
    for asked in (reported, reading()):
        importing = worker.prepare(asked)
        if importing is not None:  # it is imported here already, so this may be over at once
            wait([importing])
            assert importing.result() is None
        assert worker.prepare(asked) is None
    assert worker._importing is not None
    assert worker._whole is None


def reading() -> Request:
    mean = PoolingParams(pooling="mean")
    return Request(id="read", prompt=Prompt(tuple(range(5, 30))), params=NO_ANSWER, pooling=mean)


def vector_between_answers(loop: EngineLoop) -> list[list[float]]:
    """Of a prompt that takes several steps, which other requests share."""
    for asked in requests(PLAIN[:2]):
        loop.add(asked)
    loop.step()
    loop.add(reading())
    found = []
    while loop.has_work:
        update, ended = loop.step()
        assert not any(seq.failure for seq in ended)
        found.extend(update.pooled.values())
    [vectors] = found
    return vectors


def test_vectors_come_from_the_whole_worker(tmp_path: Path) -> None:
    path = make_text_model(tmp_path / "model").path
    [expected] = vector_between_answers(start(path))
    second = start(path)
    worker = worker_of(second)
    assert isinstance(worker, CoreWorker)
    [vector] = vector_between_answers(second)
    assert vector == pytest.approx(expected, rel=1e-5)  # chunks of other sizes are added up in another order
    assert worker._whole is not None


def test_a_warm_up_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_text_model(tmp_path / "model").path
    expected = run(start(path), requests(PLAIN))
    loop = start(path)
    worker = worker_of(loop)
    logits, calls = worker._model.logits, []
    monkeypatch.setattr(worker._model, "logits", lambda *given: calls.append(given) or logits(*given))
    assert not loop.warm_up()
    assert not loop.warm_up()
    assert len(calls) == 1
    assert not worker._memory.admitted
    assert run(loop, requests(PLAIN)) == expected


def test_rows_are_forgotten_after_a_step_that_threw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_text_model(tmp_path / "model").path
    expected = run(start(path), requests(PLAIN))
    loop = start(path)
    logits, calls = worker_of(loop)._model.logits, []

    def throwing(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            raise ValueError("this step was made to throw")
        return logits(*given)

    monkeypatch.setattr(worker_of(loop)._model, "logits", throwing)
    assert run(loop, requests(PLAIN)) == expected


def record_file(path: Path, cache: Path) -> Path:
    run(start(path), requests(PLAIN[:1]))
    [file] = [file for file in cache.iterdir() if file.suffix == ".record"]
    return file


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "of another code", "of other groups"])
def test_a_record_that_does_not_fit_is_made_anew(harm: str, tmp_path: Path, cache: Path) -> None:
    path = make_text_model(tmp_path / "model").path
    file = record_file(path, cache)
    data, record = file.read_bytes(), load_record(file)
    assert record is not None
    if harm == "of another code":
        save_record(msgspec.structs.replace(record, made_by="someone else"), file)
    elif harm == "of other groups":
        save_record(msgspec.structs.replace(record, groups=[9] * len(record.groups)), file)
    else:
        changed = {"cut": data[:-1], "flipped": data[:-1] + bytes([data[-1] ^ 1]), "empty": b""}
        file.write_bytes(changed[harm])
    again = start(path)
    assert not isinstance(worker_of(again), CoreWorker)
    run(again, requests(PLAIN[:1]))
    assert load_record(file) == record


def test_a_record_that_others_may_write_is_not_trusted(tmp_path: Path, cache: Path) -> None:
    path = make_text_model(tmp_path / "model").path
    file = record_file(path, cache)
    assert file.stat().st_mode & 0o077 == 0
    file.chmod(0o666)
    assert load_record(file) is None


def test_blocks_that_can_be_swapped_are_torch_s(tmp_path: Path, cache: Path) -> None:
    path = make_text_model(tmp_path / "model").path
    record_file(path, cache)
    settings = resolved(path)
    swapping = replace(settings, kv=replace(settings.kv, num_cpu_blocks=4))
    assert not isinstance(start_inline(path, swapping)._worker, CoreWorker)


PROGRAM = """
import sys
from quire import LLM, SamplingParams
from quire.worker import cpu_core
cpu_core._SMALLEST_KEPT = 0
llm = LLM(sys.argv[1], num_gpu_blocks_override=64)
[plain] = llm.generate(["ab"], SamplingParams(max_tokens=6, temperature=0.8, seed=1))
print(plain.outputs[0].token_ids, "torch" in sys.modules)
[bound] = llm.generate(["ab"], SamplingParams(max_tokens=6, temperature=0.8, seed=1, logprobs=1, logit_bias={9: 0.0}))
print(bound.outputs[0].token_ids, "torch" in sys.modules)
[bound] = llm.generate(["ab"], SamplingParams(max_tokens=6, temperature=0.8, seed=1, prompt_logprobs=1))
print(bound.outputs[0].token_ids, "torch" in sys.modules)
"""


def test_the_second_start_imports_torch_only_for_requests_that_need_it(tmp_path: Path) -> None:
    path = make_text_model(tmp_path / "model").path
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True, env=environment
        ).stdout.splitlines()
        for _ in range(2)
    )
    tokens = first[0].removesuffix(" True")
    assert first == [f"{tokens} True"] * 3
    assert second == [f"{tokens} False", f"{tokens} False", f"{tokens} True"]
