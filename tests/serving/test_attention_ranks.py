"""Engines whose ranks attend each to sequences of their own, as users start them: structured output, sleep, and a rank
that is killed under load."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from transformers import AutoConfig

from quire import LLM, BeamSearchParams, SamplingParams, StructuredOutput
from quire.core.outputs import RequestOutput
from quire.serving.async_llm import AsyncLLM
from tests.engine.test_structured_output import PET
from tests.executor.test_nodes import free_port
from tests.multimodal.tiny_vision import make_vision, picture
from tests.parity.tiny import CASES, SHAPE, write_tiny
from tests.scheduler.bookkeeping import AlwaysAll
from tests.serving.test_ranks import rank_pids
from tests.worker.speculation import NGRAM

ALONE: dict[str, Any] = {
    "num_gpu_blocks_override": 256,
    "block_size": 4,
    "dtype": "float32",
    "cpu_compute": "exact",
    "cpu_threads": 1,
}
SPREAD: dict[str, Any] = {**ALONE, "data_parallel_size": 2, "enable_expert_parallel": True}
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False)
DRAWN = SamplingParams(temperature=1.0, seed=7, max_tokens=24, ignore_eos=True, detokenize=False)
BOUND = SamplingParams(temperature=1.0, seed=1, max_tokens=100, structured=StructuredOutput(json=json.dumps(PET)))
ASKED = [(f"prompt {number} " * (1 + number % 5), (GREEDY, DRAWN, BOUND)[number % 3]) for number in range(9)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_chat: Path) -> str:
    """A tiny DeepSeek-V3 with the vocabulary of the tiny chat model."""
    vocabulary = json.loads((tiny_chat / "config.json").read_text())["vocab_size"]
    path = tmp_path_factory.mktemp("experts")
    write_tiny(AutoConfig.for_model(**{**SHAPE, **CASES["deepseek_v3"], "vocab_size": vocabulary}), path, seed=3)
    for file in tiny_chat.glob("tokenizer*"):
        shutil.copy(file, path)
    return str(path)


def said(llm: LLM) -> list[list[int]]:
    prompts, params = map(list, zip(*ASKED, strict=True))
    return [list(each.outputs[0].token_ids) for each in llm.generate(prompts, params, use_tqdm=False)]


@pytest.fixture(scope="module")
def expected(model: str) -> list[list[int]]:
    alone = LLM(model, **ALONE)
    try:
        return said(alone)
    finally:
        alone.close()


@pytest.mark.slow
@pytest.mark.parametrize("cores", [2, 64])
def test_grammars_bind_on_every_rank(
    cores: int, model: str, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a core for every rank all that is said to ranks goes through shared memory, or around it where it is large,
    as vocabularies are."""
    monkeypatch.setattr("quire.executor.process.num_cores", lambda: cores)
    llm = LLM(model, **SPREAD)
    try:
        ring = llm._engine.loop.executor._ring  # type: ignore[attr-defined]
        assert (ring is not None) == (cores > 2)
        if ring is not None:
            monkeypatch.setattr(ring, "fits", lambda size: size < 3000)
        assert said(llm) == expected
        bound = llm.generate([f"pet {number}" for number in range(4)], BOUND, use_tqdm=False)
        for output in bound:
            jsonschema.validate(json.loads(output.outputs[0].text), PET)
        scheduler = llm._engine.loop.scheduler
        assert all(kv.stats.tokens_asked > 0 for kv in scheduler.kv_of_ranks)
    finally:
        llm.close()


@pytest.mark.slow
def test_every_rank_drafts_under_grammars(model: str, expected: list[list[int]]) -> None:
    llm = LLM(model, **SPREAD, speculative_config=NGRAM)
    try:
        scheduler: Any = llm._engine.loop.scheduler
        for each in scheduler._ranks:
            each._draft_length = AlwaysAll(4)
        assert said(llm) == expected
        before = scheduler.drafts
        letters = SamplingParams(seed=1, max_tokens=90, structured=StructuredOutput(regex="[ab]{80}"))
        for output in llm.generate([f"letters {number}" for number in range(4)], letters, use_tqdm=False):
            assert re.fullmatch("[ab]{80}", output.outputs[0].text)
        assert (scheduler.drafts - before).accepted > 10
    finally:
        llm.close()


@pytest.mark.slow
def test_beams_and_vectors(model: str) -> None:
    """Beams fork on the rank that has them, and vectors of prompts come from both ranks."""
    prompts, found = [f"text {number}" for number in range(4)], []
    for settings in (ALONE, SPREAD):
        llm = LLM(model, **settings)
        try:
            beams = llm.beam_search(prompts[:2], BeamSearchParams(beam_width=3, max_tokens=6))
            vectors = [each.outputs.embedding for each in llm.embed(prompts)]
            found.append(([[list(beam.tokens) for beam in each.sequences] for each in beams], vectors))
        finally:
            llm.close()
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(torch.tensor(found[1][1]), torch.tensor(found[0][1]), atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 2])
def test_sleep(level: int, model: str, expected: list[list[int]]) -> None:
    llm = LLM(model, **SPREAD)
    try:
        for _ in range(2):
            assert said(llm) == expected
            llm.sleep(level)
            llm.wake_up()
        assert said(llm) == expected
    finally:
        llm.close()


@pytest.mark.slow
def test_images(tmp_path: Path) -> None:
    """Each rank encodes those of its own sequences."""
    tiny = make_vision("qwen3_vl_moe", tmp_path / "saved")
    images = [picture(90 + 10 * number, 70) for number in range(3)]
    answers = []
    for settings in (ALONE, SPREAD):
        llm = LLM(str(tiny.folder), **settings)
        try:
            prompt = llm.get_tokenizer().encode(f"Here: {tiny.mark} what is it?", add_special_tokens=False)
            given: list[Any] = [
                {"prompt_token_ids": prompt, "multi_modal_data": {"image": [image]}} for image in images
            ]
            outputs = llm.generate([*given, {"prompt_token_ids": prompt[:2]}], GREEDY, use_tqdm=False)
            answers.append([list(each.outputs[0].token_ids) for each in outputs])
            assert llm._engine.loop.encoding.encoded == 3
        finally:
            llm.close()
    assert answers[0] == answers[1]
    assert answers[0][0][:8] == tiny.greedy(prompt, [images[0]], 8)


@pytest.mark.slow
def test_over_two_hosts(model: str, expected: list[list[int]], tmp_path: Path) -> None:
    """Both are this machine."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of two hosts")
    port = free_port()
    hosts = ["--nnodes", "2", "--master-port", str(port), "--engine-secret-file", str(secret)]
    layout = ["--data-parallel-size", "2", "--enable-expert-parallel"]
    command = [sys.executable, "-m", "quire", "serve", model, *layout, *hosts, "--node-rank", "1"]
    with subprocess.Popen(command) as node:
        try:
            llm = LLM(model, nnodes=2, master_port=port, engine_secret_file=str(secret), **SPREAD)
            try:
                assert said(llm) == expected
            finally:
                llm.close()
        finally:
            node.terminate()
            node.wait(30)


async def last(llm: AsyncLLM, prompt: str, params: SamplingParams) -> RequestOutput:
    return [output async for output in llm.generate(prompt, params)][-1]


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_killed_rank_loses_no_request(model: str, expected: list[list[int]]) -> None:
    async with await AsyncLLM.create(model, **SPREAD) as llm:
        slot = llm.fleet.supervisor.slots[0]
        running = [asyncio.ensure_future(last(llm, *asked)) for asked in ASKED]
        while not slot.client.is_ready or slot.client.stats.running < 2:
            await asyncio.sleep(0.01)
        [victim] = rank_pids(slot.client.pid)
        os.kill(victim, signal.SIGKILL)
        outputs = await asyncio.gather(*running)
        assert [list(output.outputs[0].token_ids) for output in outputs] == expected
        assert slot.restarts == 1
        assert slot.client.stats.num_blocks == 2 * 256
        checked = await llm.engine_calls.check(slot.client)
        assert checked.problem is None
        assert checked.used_blocks == 0
    assert not Path(f"/proc/{victim}").exists()
