"""Engines' processes that begin before anything is known of their work."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.config.server import ServerConfig
from quire.core.sampling_params import SamplingParams
from quire.serving.async_llm import AsyncLLM
from quire.serving.begun_engines import begun_engines
from quire.serving.child_process import ENGINE

pytestmark = pytest.mark.anyio


def is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.parametrize(
    ("server", "count"),
    [
        (ServerConfig(), 1),
        (ServerConfig(replicas=2), 2),
        (ServerConfig(engines="inline"), 0),
        (ServerConfig(engines="tcp://10.0.0.5:7700", engine_secret_file="secret"), 0),
    ],
)
async def test_those_that_nobody_took_are_ended(server: ServerConfig, count: int) -> None:
    async with begun_engines(server) as begun:
        pids = [process.pid for process in begun]
        assert len(pids) == count
        assert all(map(is_there, pids))
    assert not any(map(is_there, pids))


async def test_the_first_engines_are_those_that_have_begun(tiny_chat: Path) -> None:
    config = EngineConfig.from_flat(model=str(tiny_chat), replicas=2, num_gpu_blocks_override=64)
    async with begun_engines(config.server) as begun:
        pids = [process.pid for process in begun]
        async with AsyncLLM(config, begun=begun) as llm:
            await llm.start()
            await llm.ready()
            assert not begun
            assert [slot.client.pid for slot in llm.fleet.supervisor.slots] == pids
            params = SamplingParams(max_tokens=3, ignore_eos=True)
            answers = [output async for output in llm.generate("prompt", params)]
            assert len(answers[-1].outputs[0].token_ids) == 3
    assert not any(map(is_there, pids))


def test_one_whose_server_ends_without_a_word_ends_quietly() -> None:
    done = subprocess.run([sys.executable, "-m", ENGINE], input=b"", capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
