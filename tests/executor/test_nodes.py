"""A model over two hosts without Ray; both are this machine. Words are those of one rank, and nobody waits in vain."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire import LLM, SamplingParams
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import ConfigError
from quire.executor.other_rank import RankLost
from quire.models.loading.header import read_model_facts
from quire.worker.device import cpu_facts

GREEDY = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
PROMPTS = ["hello", "the second prompt", "a third one, which is longer than the others are"]
ALONE = {"num_gpu_blocks_override": 256, "dtype": "float32", "cpu_compute": "exact"}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("a secret of two hosts")
    return file


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def second_host(model: Path, port: int, secret: Path, **settings: str) -> "subprocess.Popen[bytes]":
    flags = {
        "tensor-parallel-size": "2",
        "nnodes": "2",
        "node-rank": "1",
        "master-port": str(port),
        "engine-secret-file": str(secret),
        **settings,
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    return subprocess.Popen([sys.executable, "-m", "quire", "serve", str(model), *words])


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def node(tiny_chat: Path, port: int, secret: Path) -> "Iterator[subprocess.Popen[bytes]]":
    process = second_host(tiny_chat, port, secret)
    yield process
    process.send_signal(signal.SIGCONT)
    process.terminate()
    process.wait(30)


def llm_over_hosts(model: Path, port: int, secret: Path, **settings: object) -> LLM:
    return LLM(
        str(model),
        tensor_parallel_size=2,
        nnodes=2,
        master_port=port,
        engine_secret_file=str(secret),
        **ALONE,
        **settings,
    )


def words(llm: LLM) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in llm.generate(PROMPTS, GREEDY, use_tqdm=False)]


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_two_hosts_say_what_one_says(tiny_chat: Path, port: int, secret: Path, node: "subprocess.Popen[bytes]") -> None:
    alone = LLM(str(tiny_chat), **ALONE)
    expected = words(alone)
    alone.close()
    llm = llm_over_hosts(tiny_chat, port, secret)
    assert words(llm) == expected
    llm.sleep(1)
    assert words(llm) == expected
    llm.sleep(2)  # the other host's worker ends, and comes again
    assert words(llm) == expected
    llm.close()
    drafting = {"method": "draft_model", "model": str(tiny_chat), "num_speculative_tokens": 3}
    llm = llm_over_hosts(tiny_chat, port, secret, speculative_config=drafting)  # and for the next engine
    assert words(llm) == expected

    [worker] = children(node.pid)
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(RankLost, match=r"rank 1 \(process \d+ on .*\) is lost: its connection was closed"):
        words(llm)
    llm.close()

    llm = llm_over_hosts(tiny_chat, port, secret, rank_timeout=2.0)
    [worker] = children(node.pid)
    os.kill(worker, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(RankLost, match=r"rank 1 .* is lost: it hung: it was silent for 2 s"):
        words(llm)
    assert time.monotonic() - began < 60  # and not the 120 s of an exchange
    llm.close()  # whoever started the worker ends it


@pytest.mark.slow
def test_another_model_on_the_other_host_is_refused(tiny_chat: Path, port: int, secret: Path, tmp_path: Path) -> None:
    from tests.parity.tiny import make_tiny

    other = make_tiny("llama", tmp_path)
    process = second_host(other.path, port, secret)
    with pytest.raises(ConfigError, match=r"rank 1: .* bytes of weights, and the model of rank 0 has \d+; give all"):
        llm_over_hosts(tiny_chat, port, secret)
    process.terminate()
    assert process.wait(30) == 0


def test_workers_wait_for_the_first_host_and_end_with_a_signal(tiny_chat: Path, port: int, secret: Path) -> None:
    process = second_host(tiny_chat, port, secret)
    deadline = threading.Event()
    while not children(process.pid) and not deadline.wait(0.05):
        assert process.poll() is None
    [worker] = children(process.pid)
    process.terminate()
    assert process.wait(60) == 0
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"nnodes": 2, "tensor_parallel_size": 1}, "--nnodes is 2, which does not divide the 1 ranks"),
        ({"nnodes": 2, "tensor_parallel_size": 2, "replicas": 2}, "--nnodes is 2 and there are 2 engines"),
        (
            {"nnodes": 2, "tensor_parallel_size": 2, "distributed_executor_backend": "ray"},
            "--nnodes is 2, but with --distributed-executor-backend ray",
        ),
        ({"ray_address": "a:1"}, "--ray-address is set without"),
    ],
)
def test_settings_that_contradict_each_other(tiny_chat: Path, settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        resolve(EngineConfig.from_flat(model=str(tiny_chat), **settings), read_model_facts(str(tiny_chat)), cpu_facts())


def test_an_engine_is_on_the_first_host(tiny_chat: Path) -> None:
    with pytest.raises(ConfigError, match="--node-rank is 1, but the engine runs on host 0"):
        LLM(str(tiny_chat), tensor_parallel_size=2, nnodes=2, node_rank=1)


def test_hosts_share_a_secret(tiny_chat: Path) -> None:
    with pytest.raises(ConfigError, match="need a shared secret; give its file as --engine-secret-file"):
        LLM(str(tiny_chat), tensor_parallel_size=2, nnodes=2)
