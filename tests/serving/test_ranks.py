"""Engines of two ranks under supervision: one that loses a rank is replaced, and no request is lost."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quire.core.outputs import RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.engine.llm import LLM
from quire.serving.async_llm import AsyncLLM
from tests.multimodal.tiny_vision import make_vision, picture
from tests.serving.mixed_requests import SETTINGS, asked_of_all, check_all, texts_alone, until_some_run

pytestmark = pytest.mark.anyio
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
DRAWN = SamplingParams(temperature=1.0, seed=7, max_tokens=40, ignore_eos=True)
ASKED = [(f"prompt {number}", (GREEDY, DRAWN)[number % 2]) for number in range(8)]


def rank_pids(engine: int) -> list[int]:
    """Of the engine's child processes, those that are ranks."""
    children = map(int, Path(f"/proc/{engine}/task/{engine}/children").read_text().split())
    return [pid for pid in children if b"rank_child" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def last(llm: AsyncLLM, prompt: str | Mapping[str, object], params: SamplingParams) -> RequestOutput:
    return [output async for output in llm.generate(prompt, params)][-1]


async def test_a_killed_rank_loses_no_request(tiny_chat: Path) -> None:
    settings: dict[str, Any] = {"num_gpu_blocks_override": 256, "dtype": "float32", "cpu_compute": "exact"}
    alone = LLM(str(tiny_chat), **settings)
    prompts, params = map(list, zip(*ASKED, strict=True))
    expected = [each.outputs[0].token_ids for each in alone.generate(prompts, params, use_tqdm=False)]
    alone.close()
    async with await AsyncLLM.create(str(tiny_chat), tensor_parallel_size=2, **settings) as llm:
        slot = llm.fleet.supervisor.slots[0]
        for _ in range(2):
            running = [asyncio.ensure_future(last(llm, *asked)) for asked in ASKED]
            started = llm.generate("the first token", GREEDY)
            first = await anext(started)  # so that there is something to lose
            [victim] = rank_pids(slot.client.pid)
            os.kill(victim, signal.SIGKILL)
            outputs = await asyncio.gather(*running)
            assert [output.outputs[0].token_ids for output in outputs] == expected
            assert all(output.finished for output in outputs)
            assert len([first, *[output async for output in started]][-1].outputs[0].token_ids) == 40
        assert slot.restarts == 2
        checked = await llm.engine_calls.check(slot.client)
        assert checked.problem is None
        assert checked.used_blocks == 0
        ranks = rank_pids(slot.client.pid)
        assert len(ranks) == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "method"), [("tensor_parallel_size", "draft_model"), ("pipeline_parallel_size", "ngram")]
)
async def test_a_rank_that_is_killed_while_drafts_are_verified(layout: str, method: str, tiny_chat: Path) -> None:
    settings: dict[str, Any] = {"num_gpu_blocks_override": 256, "dtype": "float32", "cpu_compute": "exact"}
    alone = LLM(str(tiny_chat), **settings)
    prompts, params = map(list, zip(*ASKED, strict=True))
    expected = [each.outputs[0].token_ids for each in alone.generate(prompts, params, use_tqdm=False)]
    alone.close()
    drafting: dict[str, Any] = {"method": method, "num_speculative_tokens": 3}
    if method == "draft_model":
        drafting["model"] = str(tiny_chat)
    async with await AsyncLLM.create(str(tiny_chat), speculative_config=drafting, **{layout: 2}, **settings) as llm:
        slot = llm.fleet.supervisor.slots[0]
        for _ in range(2):
            running = [asyncio.ensure_future(last(llm, *asked)) for asked in ASKED * 4]
            while not slot.client.is_ready or slot.client.stats.running < 2:
                await asyncio.sleep(0.01)
            [victim] = rank_pids(slot.client.pid)
            os.kill(victim, signal.SIGKILL)
            outputs = await asyncio.gather(*running)
            assert [output.outputs[0].token_ids for output in outputs] == expected * 4
        assert slot.restarts == 2
        assert slot.client.stats.total_drafts > 0
        checked = await llm.engine_calls.check(slot.client)
        assert (checked.problem, checked.used_blocks) == (None, 0)


@pytest.mark.slow
async def test_a_killed_stage_loses_no_image(tmp_path: Path) -> None:
    """The stage that encodes is another process's; the engine that takes over encodes the images again."""
    tiny = make_vision("qwen2_5_vl", tmp_path)
    settings = {"num_gpu_blocks_override": 256, "dtype": "float32", "cpu_compute": "exact"}
    prompts = [
        {"prompt": f"{number}: {tiny.mark} is what?", "multi_modal_data": {"image": picture(90, 161, number)}}
        for number in range(4)
    ]
    alone = LLM(str(tiny.folder), **settings)
    expected = [each.outputs[0].token_ids for each in alone.generate(prompts, GREEDY, use_tqdm=False)]
    alone.close()
    assert len({tuple(tokens) for tokens in expected}) == len(prompts)
    async with await AsyncLLM.create(str(tiny.folder), pipeline_parallel_size=2, **settings) as llm:
        slot = llm.fleet.supervisor.slots[0]
        for _ in range(2):
            started = llm.generate(prompts[0], GREEDY)
            first = await anext(started)  # so that its image is encoded
            running = [asyncio.ensure_future(last(llm, prompt, GREEDY)) for prompt in prompts[1:]]
            [victim] = rank_pids(slot.client.pid)
            os.kill(victim, signal.SIGKILL)
            outputs = [[first, *[output async for output in started]][-1], *await asyncio.gather(*running)]
            assert [output.outputs[0].token_ids for output in outputs] == expected
        assert slot.restarts == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_fifty_mixed_requests_outlive_their_ranks(tiny_chat: Path, number: int) -> None:
    """Whichever worker is killed or stopped, the engine's own process too; three times."""
    expected = texts_alone(tiny_chat)
    settings = {**SETTINGS, "rank_timeout": 3.0, "outage_timeout": 600.0}
    async with await AsyncLLM.create(str(tiny_chat), tensor_parallel_size=2, **settings) as llm:
        slot = llm.fleet.supervisor.slots[0]
        for attempt in range(3):
            running = asked_of_all(llm)
            await until_some_run(llm)
            victims = [*rank_pids(slot.client.pid), slot.client.pid]
            os.kill(victims[attempt % 2], number)
            check_all(await asyncio.gather(*running), expected)
        assert slot.restarts == 3
