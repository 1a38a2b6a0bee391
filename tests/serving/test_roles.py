"""Engines with roles in processes of their own: the texts of one engine, and nothing lost when one is killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quire.core.errors import ConfigError
from quire.core.prompt import Prompt
from quire.core.request import NO_ANSWER, Request
from quire.core.sampling_params import SamplingParams
from quire.core.stats import EngineStats
from quire.engine.llm import LLM
from quire.serving.async_llm import AsyncLLM
from quire.serving.channel import QueueChannel
from quire.serving.messages import FromEngine, Pull, Sleep
from quire.serving.runner import Runner
from tests.serving.fake_client import STARTED

pytestmark = pytest.mark.anyio
PROMPTS = [f"request {number} " + "tells a long story " * (9 + number % 3) for number in range(12)]
LONG = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
SETTINGS = {"num_gpu_blocks_override": 512, "max_num_batched_tokens": 128}


@pytest.fixture(scope="module")
def alone(tiny_chat: Path) -> list[list[int]]:
    llm = LLM(str(tiny_chat), **SETTINGS)
    outputs = llm.generate(PROMPTS, LONG, use_tqdm=False)
    llm.close()
    return [list(output.outputs[0].token_ids) for output in outputs]


WITHOUT_NIXL = pytest.mark.skipif(find_spec("nixl") is None, reason="nixl is not installed")


@pytest.fixture(scope="module", params=["sockets", pytest.param("nixl", marks=WITHOUT_NIXL)])
async def llm(tiny_chat: Path, request: pytest.FixtureRequest) -> AsyncIterator[AsyncLLM]:
    roles = {"prefill_engines": 1, "decode_engines": 1, "kv_carrier": request.param}
    async with await AsyncLLM.create(str(tiny_chat), **roles, **SETTINGS) as started:
        yield started


async def all_ready(llm: AsyncLLM, gone: object = None) -> list:
    """Once nobody counts on the client that is `gone` any more."""
    async with asyncio.timeout(120):
        while not all(slot.client.is_ready and slot.client is not gone for slot in llm.fleet.supervisor.slots):
            await asyncio.sleep(0.05)
    return [slot.client for slot in llm.fleet.supervisor.slots]


async def answers(llm: AsyncLLM) -> list[list[int]]:
    async def one(prompt: str) -> list[int]:
        return list([output async for output in llm.generate(prompt, LONG)][-1].outputs[0].token_ids)

    return await asyncio.gather(*(one(prompt) for prompt in PROMPTS))


async def books_balance(llm: AsyncLLM, clients: list) -> None:
    for client in clients:
        checked = await llm.engine_calls.check(client)
        assert (checked.problem, checked.used_blocks) == (None, 0)
    assert len(llm.fleet.dispatcher.journal) == 0


async def test_prompts_and_answers_in_different_engines(llm, alone):
    prefill, decode = await all_ready(llm)
    assert (prefill.role, decode.role) == ("prefill", "decode")
    assert await answers(llm) == alone
    await books_balance(llm, [prefill, decode])
    async with asyncio.timeout(30):
        # engines that are idle tell their figures once a second
        while not 0 < prefill.stats.total_kv_sent_bytes == decode.stats.total_kv_received_bytes:
            await asyncio.sleep(0.1)
    # the decode engine computed tails of prompts only
    assert decode.stats.total_prefix_hits > 0.8 * decode.stats.total_prefix_tokens


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_killed_engine_loses_nothing(llm, alone, role):
    clients = await all_ready(llm)
    running = asyncio.create_task(answers(llm))
    victim = next(client for client in clients if client.role == role)
    async with asyncio.timeout(60):
        # a prompt that the decode engine still has may need no prefill engine at all
        while not llm.fleet.dispatcher.journal.on_client(victim) and not running.done():
            await asyncio.sleep(0.001)
    os.kill(victim.pid, signal.SIGKILL)
    assert await running == alone
    await books_balance(llm, await all_ready(llm, gone=victim))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"role": "prefill"}, "--prefill-engines"),
        ({"kv_transfer": True}, "there is one"),
        ({"kv_transfer": True, "engines": "tcp://127.0.0.1:1"}, "quire engine"),
        ({"kv_carrier": "nixl"}, "engines exchange no KV here"),
        ({"kv_carrier": "nixl", "prefill_engines": 1, "decode_engines": 1, "sleep_after": 9.0}, "does not sleep"),
    ],
)
async def test_what_is_for_engines_is_refused_by_servers(tiny_chat, given, told):
    with pytest.raises(ConfigError, match=told):
        await AsyncLLM.create(str(tiny_chat), **given, **SETTINGS)


@pytest.mark.skipif(find_spec("nixl") is not None, reason="nixl is installed")
async def test_without_nixl_engines_do_not_start(tiny_chat):
    with pytest.raises(ConfigError, match=r"pip install quire\[nixl\]"):
        async with await AsyncLLM.create(
            str(tiny_chat), prefill_engines=1, decode_engines=1, kv_carrier="nixl", **SETTINGS
        ):
            pass


def test_an_engine_whose_blocks_are_on_their_way_stays_awake():
    told: list[FromEngine] = []
    slept: list[int] = []
    scheduler = SimpleNamespace(live_requests=[])
    loop: Any = SimpleNamespace(scheduler=scheduler, sleep_level=0, num_wakes=0, figures=None, has_work=False)
    loop.sleep, loop.wake_up = slept.append, lambda: slept.append(0)
    exchange: Any = SimpleNamespace(pull=lambda *asked: slept.append(-1), holds_blocks=True, stays_awake=False)
    runner = Runner(loop, STARTED, QueueChannel(told.append), exchange)
    runner._probe = SimpleNamespace(stats=EngineStats)
    runner._sleep(Sleep(1))
    runner._go_to_sleep()
    [refusal] = told
    assert "on its way" in refusal.problem
    assert slept == []
    exchange.holds_blocks = False
    exchange.stays_awake = True
    runner._sleep(Sleep(1))
    runner._go_to_sleep()
    assert "--kv-carrier nixl" in told[-1].problem
    exchange.stays_awake = False
    runner._sleep(Sleep(1))
    runner._go_to_sleep()
    runner._pull(Pull(Request(id="r", prompt=Prompt((1,)), params=NO_ANSWER), "unix:///kv"))
    assert slept == [1, 0, -1]  # awake again before anything is fetched
