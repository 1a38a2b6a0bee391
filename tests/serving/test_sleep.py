"""Engines that sleep: by request, by themselves, woken up by whoever comes; as processes and behind a connection."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError, InvalidRequest, StillBusy
from quire.core.sampling_params import SamplingParams
from quire.observe.metrics import Metrics
from quire.serving.async_llm import AsyncLLM
from quire.serving.engine_link import EngineAddress
from quire.serving.engine_server import EngineServer
from quire.serving.process_engines import ProcessEngines

pytestmark = pytest.mark.anyio
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
async def llm(tiny_chat: Path) -> AsyncIterator[AsyncLLM]:
    async with await AsyncLLM.create(str(tiny_chat), num_gpu_blocks_override=256, replicas=2) as started:
        while len(started.fleet.supervisor.ready()) < 2:
            await asyncio.sleep(0.05)
        yield started


async def tokens(llm: AsyncLLM, prompt: str = "prompt", params: SamplingParams = GREEDY) -> list[int]:
    return [list(output.outputs[0].token_ids) async for output in llm.generate(prompt, params)][-1]


def levels(llm: AsyncLLM) -> list[int]:
    return [client.stats.sleep_level for client in llm.fleet.supervisor.ready()]


@pytest.mark.parametrize("level", [1, 2])
async def test_all_engines_sleep_and_one_wakes_up_for_a_request(llm: AsyncLLM, level: int) -> None:
    wanted = await tokens(llm)
    pids = [client.pid for client in llm.fleet.supervisor.ready()]
    await llm.sleep(level)
    assert levels(llm) == [level] * 2
    assert await llm.is_sleeping()
    assert await tokens(llm) == wanted
    assert sorted(levels(llm)) == [0, level]
    assert not await llm.is_sleeping()
    await llm.wake_up()
    assert levels(llm) == [0, 0]
    assert await tokens(llm) == wanted
    assert [client.pid for client in llm.fleet.supervisor.ready()] == pids


async def test_many_that_come_while_it_sleeps_are_all_answered(llm: AsyncLLM) -> None:
    wanted = await asyncio.gather(*(tokens(llm, f"prompt {number}") for number in range(8)))
    await llm.sleep(2)
    assert await asyncio.gather(*(tokens(llm, f"prompt {number}") for number in range(8))) == wanted


async def test_nobody_sleeps_while_requests_are_live(llm: AsyncLLM) -> None:
    running = llm.generate("prompt", SamplingParams(temperature=0, max_tokens=200, ignore_eos=True))
    await anext(running)
    with pytest.raises(StillBusy, match="1 requests are live"):
        await llm.sleep(1)
    await running.aclose()  # type: ignore[attr-defined]
    with pytest.raises(InvalidRequest, match="level is 0"):
        await llm.sleep(0)


async def test_an_idle_engine_sleeps_by_itself(tiny_chat: Path) -> None:
    async with await AsyncLLM.create(str(tiny_chat), num_gpu_blocks_override=64, sleep_after=0.3, sleep_level=2) as llm:
        wanted = await tokens(llm)
        while not await llm.is_sleeping():
            await asyncio.sleep(0.05)
        assert levels(llm) == [2]
        assert await tokens(llm) == wanted
        while not await llm.is_sleeping():
            await asyncio.sleep(0.05)
        assert llm.fleet.supervisor.ready()[0].stats.total_wakes == 1


async def test_an_engine_behind_a_connection_sleeps(tiny_chat: Path, tmp_path: Path) -> None:
    secret = b"a secret that nobody guesses"
    file = tmp_path / "secret"
    file.write_bytes(secret)
    config = EngineConfig.from_flat(model=str(tiny_chat), num_gpu_blocks_override=64)
    engines = ProcessEngines(config, 3)
    address = EngineAddress("unix", path=os.path.join(engines.folder, "engine"))
    server = EngineServer(
        lambda on_message: engines.client(0, on_message), address, secret, metrics=Metrics("m", 1), step_timeout=60
    )
    try:
        await server.start()
        await server.ready()
        settings = {"engines": str(address), "engine_secret_file": str(file)}
        async with await AsyncLLM.create(str(tiny_chat), **settings) as llm:
            wanted = await tokens(llm)
            await llm.sleep(2)
            assert await llm.is_sleeping()
            assert await tokens(llm) == wanted
            await llm.sleep(1)
            await llm.wake_up()
            assert not await llm.is_sleeping()
    finally:
        await server.close()
        engines.close()


def test_what_does_not_go_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give it to `quire engine`"):
        EngineConfig.from_flat(model="m", engines="tcp://host:1", sleep_after=3)
    with pytest.raises(ConfigError, match="sleep-level"):
        EngineConfig.from_flat(model="m", sleep_level=3)
