"""Engines whose experts have copies, as users start them: they sleep, wake and lose ranks while copies move."""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from quire.core.outputs import RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.engine.llm import LLM
from quire.serving.async_llm import AsyncLLM
from tests.executor.test_rank_families import PROMPTS
from tests.parity.tiny import make_tiny
from tests.serving.test_ranks import rank_pids

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False)
ALONE: dict[str, Any] = {
    "num_gpu_blocks_override": 256,
    "dtype": "float32",
    "cpu_compute": "exact",
    "cpu_threads": 1,
}
COPIED: dict[str, Any] = {
    **ALONE,
    "tensor_parallel_size": 2,
    "enable_expert_parallel": True,
    "num_redundant_experts": 2,
    "eplb_step_interval": 2,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_chat: Path) -> str:
    path = make_tiny("deepseek_v3", tmp_path_factory.mktemp("experts")).path
    for file in tiny_chat.glob("tokenizer*"):
        shutil.copy(file, path)
    return str(path)


@pytest.fixture(scope="module")
def expected(model: str) -> list[list[int]]:
    alone = LLM(model, **ALONE)
    try:
        return tokens(alone)
    finally:
        alone.close()


def tokens(llm: LLM) -> list[list[int]]:
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    return [list(each.outputs[0].token_ids) for each in outputs]


@pytest.mark.parametrize("level", [1, 2])
def test_sleep(level: int, model: str, expected: list[list[int]]) -> None:
    """From the deeper sleep ranks come back with the first copies, and these move again."""
    llm = LLM(model, **COPIED)
    try:
        for _ in range(2):
            for _ in range(3):
                assert tokens(llm) == expected
            balance = llm._engine.loop.executor.rank_balance()
            assert balance is not None
            assert balance.copies_moved > 0
            llm.sleep(level)
            llm.wake_up()
        assert tokens(llm) == expected
    finally:
        llm.close()


async def last(llm: AsyncLLM, prompt: list[int]) -> RequestOutput:
    return [output async for output in llm.generate({"prompt_token_ids": prompt}, GREEDY)][-1]


async def test_a_killed_rank_loses_no_request(model: str, expected: list[list[int]]) -> None:
    async with await AsyncLLM.create(model, **COPIED) as llm:
        slot = llm.fleet.supervisor.slots[0]
        for _ in range(2):
            running = [asyncio.ensure_future(last(llm, prompt)) for prompt in PROMPTS]
            await asyncio.wait(running, timeout=0.5)
            [victim] = rank_pids(slot.client.pid)
            os.kill(victim, signal.SIGKILL)
            outputs = await asyncio.gather(*running)
            assert [list(output.outputs[0].token_ids) for output in outputs] == expected
            again = await asyncio.gather(*(last(llm, prompt) for prompt in PROMPTS))
            assert [list(output.outputs[0].token_ids) for output in again] == expected
        assert slot.restarts == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in [victim])
