"""A model over the nodes of a real cluster of Ray, two of them on this machine."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import LLM
from quire.core.errors import ConfigError
from quire.core.outputs import RequestOutput
from quire.core.sampling_params import SamplingParams
from quire.executor.other_rank import RankLost
from quire.serving.async_llm import AsyncLLM
from tests.executor.test_nodes import ALONE, words
from tests.serving.mixed_requests import asked_of_all, check_all, texts_alone, until_some_run

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
ray = pytest.importorskip("ray")
STORE = 80 * 2**20
ON_RAY = {"tensor_parallel_size": 2, "distributed_executor_backend": "ray"}


def add_node(cluster: Any) -> None:
    """With an address of its own: the first rank goes to the host of the engine, which else might be either node."""
    cluster.add_node(num_cpus=1, object_store_memory=STORE, node_ip_address="127.0.0.2")


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=head)
    add_node(started)
    yield started
    ray.shutdown()
    started.shutdown()


def rank_actors() -> list[int]:
    """Processes of this test's clusters in which ranks run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and _reads(folder / "cmdline").startswith("ray::RankActor"):
            parent = int(folder.name)
            while parent > 1 and parent != os.getpid():
                parent = int(_reads(Path(f"/proc/{parent}/stat")).rpartition(")")[2].split()[1] or 0)
            if parent == os.getpid():
                found.append(int(folder.name))
    return found


def _reads(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ") S 0"


def until(happens: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_two_nodes_say_what_one_process_says(tiny_chat: Path, cluster: Any) -> None:
    alone = LLM(str(tiny_chat), **ALONE)
    expected = words(alone)
    alone.close()
    llm = LLM(str(tiny_chat), ray_address=cluster.address, **ON_RAY, **ALONE)
    assert words(llm) == expected
    llm.sleep(2)
    assert words(llm) == expected
    llm.close()
    until(lambda: ray.available_resources().get("CPU") == 2)  # nothing stays reserved

    drafting = {"method": "draft_model", "model": str(tiny_chat), "num_speculative_tokens": 3}
    llm = LLM(str(tiny_chat), ray_address=cluster.address, speculative_config=drafting, **ON_RAY, **ALONE)
    assert words(llm) == expected
    [actor] = rank_actors()
    os.kill(actor, signal.SIGKILL)
    with pytest.raises(RankLost, match=r"rank 1 \(process \d+ on .*\) is lost: .*"):
        words(llm)
    llm.close()

    llm = LLM(str(tiny_chat), ray_address=cluster.address, rank_timeout=2.0, **ON_RAY, **ALONE)
    [actor] = rank_actors()
    os.kill(actor, signal.SIGSTOP)
    with pytest.raises(RankLost, match=r"rank 1 .* is lost: it hung: it was silent for 2 s"):
        words(llm)
    llm.close()


def test_no_room_is_told(tiny_chat: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.executor.ray._ROOM_SECONDS", 3.0)
    with pytest.raises(
        ConfigError, match=r"no room for 2 ranks of 4 CPU each, .*: it has 2 nodes with 2 of 2 CPU free"
    ):
        LLM(str(tiny_chat), ray_address=cluster.address, cpu_threads=8, **ON_RAY, **ALONE)


def test_no_cluster_is_told(tiny_chat: Path) -> None:
    with pytest.raises(ConfigError, match=r"--ray-address is 127\.0\.0\.1:1, and no cluster of Ray answers there"):
        LLM(str(tiny_chat), ray_address="127.0.0.1:1", **ON_RAY, **ALONE)


async def test_killed_actors_lose_no_request(tiny_chat: Path, cluster: Any) -> None:
    expected = texts_alone(tiny_chat)
    settings = {**ON_RAY, **ALONE, "outage_timeout": 600.0}
    async with await AsyncLLM.create(str(tiny_chat), ray_address=cluster.address, **settings) as llm:
        for _ in range(3):
            running = asked_of_all(llm)
            await until_some_run(llm)
            [actor] = rank_actors()
            os.kill(actor, signal.SIGKILL)
            check_all(await asyncio.gather(*running), expected)
        assert llm.fleet.supervisor.slots[0].restarts == 3


async def test_a_node_that_goes_and_one_that_comes(tiny_chat: Path, cluster: Any) -> None:
    """Requests wait for a node as long as --outage-timeout says, and go on where they were."""
    expected = texts_alone(tiny_chat)
    settings = {**ON_RAY, **ALONE, "outage_timeout": 600.0}
    async with await AsyncLLM.create(str(tiny_chat), ray_address=cluster.address, **settings) as llm:
        running = asked_of_all(llm)
        await until_some_run(llm)
        cluster.remove_node(next(iter(cluster.worker_nodes)))
        slot = llm.fleet.supervisor.slots[0]
        while slot.client.waiting_for is None:
            await asyncio.sleep(0.2)
        assert "room in Ray's cluster for 2 ranks" in slot.client.waiting_for
        add_node(cluster)
        check_all(await asyncio.gather(*running), expected)
        assert slot.restarts >= 1


async def test_a_node_that_stays_away_is_told(tiny_chat: Path, cluster: Any) -> None:
    from quire.core.errors import RequestFailed, Unavailable

    settings = {**ON_RAY, **ALONE, "outage_timeout": 5.0}
    long = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)

    async def one(llm: AsyncLLM, number: int) -> list[RequestOutput]:
        return [output async for output in llm.generate(f"prompt {number}", long)]

    async with await AsyncLLM.create(str(tiny_chat), ray_address=cluster.address, **settings) as llm:
        running = [asyncio.ensure_future(one(llm, number)) for number in range(8)]
        await until_some_run(llm)
        cluster.remove_node(next(iter(cluster.worker_nodes)))
        ends = await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 120)
        assert all(isinstance(end, RequestFailed | Unavailable) for end in ends), ends
        print(ends[0], file=sys.stderr)
        assert "no engine has been ready" in str(llm.fleet.supervisor.health_problem())
