"""A model over the nodes of a real cluster of Ray, two of them on this machine."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import LLM
from quire.core.errors import ConfigError
from quire.executor.other_rank import RankLost
from tests.executor.test_nodes import ALONE, words

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray")
STORE = 80 * 2**20


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1")
    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=head)
    started.add_node(num_cpus=1, object_store_memory=STORE)
    yield started
    ray.shutdown()
    started.shutdown()


def llm_on(cluster: Any, model: Path, **settings: Any) -> LLM:
    return LLM(
        str(model),
        tensor_parallel_size=2,
        distributed_executor_backend="ray",
        ray_address=cluster.address,
        **ALONE,
        **settings,
    )


def actor_pid() -> int:
    from ray.util.state import list_actors

    [actor] = [each for each in list_actors() if each.state == "ALIVE"]
    return int(actor.pid)


def test_two_nodes_say_what_one_process_says(tiny_chat: Path, cluster: Any) -> None:
    alone = LLM(str(tiny_chat), **ALONE)
    expected = words(alone)
    alone.close()
    llm = llm_on(cluster, tiny_chat)
    assert words(llm) == expected
    llm.sleep(2)
    assert words(llm) == expected
    llm.close()
    assert ray.available_resources()["CPU"] == 2  # nothing stays reserved
