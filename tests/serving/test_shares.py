"""Several engines of a machine get devices, memory and cores of their own."""

import pytest

from quire.config.devices import DEVICES
from quire.serving.shares import replica_share, visible_gpus


def devices(replicas: int, gpus: list[str]) -> list[str | None]:
    return [replica_share(each, replicas, gpus).environment.get("CUDA_VISIBLE_DEVICES") for each in range(replicas)]


def test_each_engine_has_gpus_of_its_own():
    assert devices(2, ["0", "1"]) == ["0", "1"]
    assert devices(2, ["4", "5", "6", "7"]) == ["4,5", "6,7"]
    assert devices(3, ["0", "1", "2", "3"]) == ["0", "1", "2"]
    assert replica_share(0, 2, ["0", "1"]).memory == 1.0


def test_more_engines_than_gpus_share_them_and_their_memory():
    assert devices(3, ["0", "1"]) == ["0", "1", "0"]
    assert [replica_share(each, 3, ["0", "1"]).memory for each in range(3)] == [0.5, 1.0, 0.5]
    assert [replica_share(each, 2, ["0"]).memory for each in range(2)] == [0.5, 0.5]


def test_one_engine_sees_everything():
    share = replica_share(0, 1, ["0", "1"])
    assert share.memory == 1.0
    assert "CUDA_VISIBLE_DEVICES" not in share.environment


def test_on_a_cpu_memory_and_cores_are_divided(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = replica_share(1, 2, [])
    assert share.memory == 0.5
    assert "OMP_NUM_THREADS" in share.environment
    cpu = DEVICES["cpu"]
    assert cpu.shared(0.5).memory_bytes == cpu.memory_bytes // 2


@pytest.mark.parametrize(
    ("said", "found"), [("2,3", ["2", "3"]), ("", []), ("-1", []), ("GPU-ab, GPU-cd", ["GPU-ab", "GPU-cd"])]
)
def test_what_the_environment_says_counts(monkeypatch, said, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    assert visible_gpus() == found
