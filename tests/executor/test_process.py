"""Two ranks of one model under everything that an engine does to a sequence, and what happens when one is lost."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.config.resolved import Resolved
from quire.core.errors import ConfigError
from quire.core.plan import StepPlan
from quire.core.rank_place import RankPlace
from quire.executor.other_rank import OtherRank
from quire.executor.process import ProcessExecutor, RankLost, RankProcess, start_first, start_processes
from quire.executor.rank_messages import Answer, Arrived, Failed, RankSettings, frame
from quire.models.loading.header import read_model_facts
from quire.worker.device import cpu_facts
from quire.worker.dummy import dummy_sequence
from tests.executor.ranks import OtherRanks, RankRunner, logprobs_found, running
from tests.models.loading.converted import tiny_model, write_gguf
from tests.models.quantized_folders import WEIGHTS_ALONE, WITH_ACTIVATIONS, write_folder
from tests.parity.test_families import prompt_of
from tests.parity.tiny import Tiny, make_tiny

COUNT = 16
SHORT = [[5, 6, 7, 8], [11, 12, 13]]
PROMPTS = [prompt_of(length, seed=20 + length) for length in (2, 45, 9, 31, 17)]


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherRanks]:
    ranks = OtherRanks(tmp_path_factory.mktemp("ranks"), 1)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("qwen2-windows", tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def expected(tiny: Tiny) -> list[list[int]]:
    with running(tiny.path) as one:
        return one.run(PROMPTS, COUNT)


def test_chunks_in_a_mixed_batch(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    settings = {"max_num_seqs": 5, "max_num_batched_tokens": 19}
    with running(tiny.path, others, tensor_parallel_size=2, **settings) as two:
        assert two.run(PROMPTS, COUNT) == expected


def test_prefix_hits(tiny: Tiny, others: OtherRanks, expected: list[list[int]]) -> None:
    with running(tiny.path, others, tensor_parallel_size=2) as two:
        two.run(PROMPTS, 1)
        assert two.run(PROMPTS, COUNT) == expected
        assert two.scheduler.kv.stats.tokens_saved > 60


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_after_preemption(others: OtherRanks, tmp_path: Path, mode: str) -> None:
    tiny = make_tiny("llama", tmp_path)
    prompts = [prompt_of(20 + place, seed=10 + place) for place in range(4)]
    with running(tiny.path) as one:
        expected = one.run(prompts, 32)
    settings = {"num_gpu_blocks_override": 34, "preemption_mode": mode, "swap_space": 0.01, "max_model_len": 64}
    with running(tiny.path, others, tensor_parallel_size=2, **settings) as two:
        assert two.run(prompts, 32) == expected
        stats = two.scheduler.stats
        assert (stats.preempted_swap if mode == "swap" else stats.preempted_recompute) > 0


def test_sampling_draws_the_same_tokens(tiny: Tiny, others: OtherRanks) -> None:
    asked = {"temperature": 0.8, "top_p": 0.9, "seed": 5, "repetition_penalty": 1.2}
    with running(tiny.path) as one:
        drawn = one.run(PROMPTS, COUNT, **asked)
    with running(tiny.path, others, tensor_parallel_size=2) as two:
        assert two.run(PROMPTS, COUNT, **asked) == drawn


def test_logprobs(tiny: Tiny, others: OtherRanks) -> None:
    with running(tiny.path) as one, running(tiny.path, others, tensor_parallel_size=2) as two:
        alone, together = logprobs_found(one, PROMPTS[:2]), logprobs_found(two, PROMPTS[:2])
    assert len(alone) == 2 * 4 + sum(len(prompt) - 1 for prompt in PROMPTS[:2])
    torch.testing.assert_close(torch.tensor(together), torch.tensor(alone), atol=1e-4, rtol=0)


QUANTIZED = ["gptq 4 bits 64", "gptq asymmetric", "awq 64", "packed 4 bits 32", "nf4", "llm.int8"]


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("held", ["expand", "keep"])
def test_quantized_weights(name: str, held: str, others: OtherRanks, tmp_path: Path) -> None:
    path = write_folder(tmp_path / "folder", WEIGHTS_ALONE[name])
    check_two_ranks(path, others, packed_weights=held)


def test_fp8_is_cut_where_its_blocks_end(others: OtherRanks, tmp_path: Path) -> None:
    """Expanded, since what a rank reads would be quantized with scales of its own."""
    path = write_folder(tmp_path / "folder", WITH_ACTIVATIONS["fp8 blocks"])
    check_two_ranks(path, others, packed_weights="expand")


def test_weights_quantized_as_they_are_loaded(others: OtherRanks, tmp_path: Path) -> None:
    path = write_folder(tmp_path / "folder", None)
    with (
        running(path, quantization="int8") as one,
        running(path, others, quantization="int8", tensor_parallel_size=2) as two,
    ):
        assert one.run(SHORT, 1) == two.run(SHORT, 1)
        assert two.weight_bytes[0] < 0.55 * one.weight_bytes[0]


@pytest.mark.parametrize("name", ["llama", "qwen3moe"])
@pytest.mark.parametrize("held", ["expand", "keep"])
def test_gguf(name: str, held: str, others: OtherRanks, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", name, tiny_model(name), "Q8_0")
    check_two_ranks(path, others, packed_weights=held)


def check_two_ranks(path: Path, others: OtherRanks, **settings: str) -> None:
    with running(path, **settings) as one:
        expected = one.run(SHORT, COUNT)
    with running(path, others, tensor_parallel_size=2, **settings) as two:
        assert two.run(SHORT, COUNT) == expected
        assert max(two.weight_bytes) == pytest.approx(two.resolved.weight_bytes, rel=0.05)


def test_what_cannot_be_cut_is_refused_with_its_borders(tmp_path: Path, others: OtherRanks) -> None:
    path = write_folder(tmp_path / "folder", WEIGHTS_ALONE["gptq act-order"])
    with pytest.raises(ConfigError, match="act-order cannot be cut by columns"):
        RankRunner(path, others, tensor_parallel_size=2)


@pytest.mark.parametrize(
    ("kind", "told"), [("ConfigError", "rank 1: columns cannot be cut"), ("OSError", "connection closed by peer")]
)
def test_a_start_that_felt_another_ranks_end_tells_of_its_refusal(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, kind: str, told: str
) -> None:
    """A rank may refuse the model, and end, before this one has met all others."""
    refusal = ConfigError if kind == "ConfigError" else RuntimeError

    def cut_off(*_: object, **__: object) -> None:
        rank.say(Failed(kind, "columns cannot be cut"))
        raise RuntimeError("connection closed by peer")

    monkeypatch.setattr("quire.executor.process.start_rank", cut_off)
    with SpokenRank() as rank:
        rank.say(Arrived())
        with pytest.raises(refusal, match=told) as raised:
            start_first(tiny.path, resolved_for(tiny), "nowhere", RankPlace(0, 2), [rank])
    assert type(raised.value) is refusal


class SpokenRank(OtherRank):
    """One that says what a test has it say."""

    place = "nowhere"

    def __init__(self) -> None:
        here, self._there = socket.socketpair()
        super().__init__(1, here, timeout=30.0)
        self.listen()

    def say(self, answer: Answer) -> None:
        self._there.sendall(frame(answer))

    def __enter__(self) -> "SpokenRank":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def kill(self) -> None: ...

    def close(self) -> None:
        self._there.close()
        self.hang_up()

    def _exit(self) -> str:
        return "it is gone"


def asked_of(tiny: Tiny, **settings: float) -> EngineConfig:
    return EngineConfig.from_flat(
        model=str(tiny.path), dtype="float32", num_gpu_blocks_override=64, tensor_parallel_size=2, **settings
    )


def resolved_for(tiny: Tiny) -> Resolved:
    return resolve(asked_of(tiny), read_model_facts(str(tiny.path)), cpu_facts())


def executor_of(tiny: Tiny, **settings: float) -> ProcessExecutor:
    return start_processes(tiny.path, resolved_for(tiny), asked_of(tiny, **settings), cpu_facts())


def test_a_killed_rank_is_named(tiny: Tiny) -> None:
    executor, layout = executor_of(tiny), resolved_for(tiny).kv
    [pid] = executor.pids
    os.kill(pid, signal.SIGKILL)
    sequence = dummy_sequence(0, 4, layout)
    with pytest.raises(RuntimeError):
        executor.execute(StepPlan(step=0, admitted=[sequence], rows=[0], counts=[4], num_sampling=1)).result()
    with pytest.raises(RankLost, match=rf"rank 1 \(process {pid}\) is lost: killed by SIGKILL"):
        executor.reset()
    executor.close()


def test_plans_through_shared_memory(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on hosts with a core for every rank; what is too large for the ring goes around it, in its turn."""
    prompts = PROMPTS[:3]
    with running(tiny.path) as one:
        wanted = one.run(prompts, 8)
    monkeypatch.setattr("quire.executor.process.num_cores", lambda: 64)
    executor = executor_of(tiny)
    assert executor._ring is not None
    monkeypatch.setattr(executor._ring, "fits", lambda size: size < 150)
    settings = {"tensor_parallel_size": 2, "block_size": 16, "num_gpu_blocks_override": 64}
    with running(tiny.path, executor=executor, **settings) as two:
        assert two.run(prompts, 8) == wanted
    assert not executor.pids


def test_a_stopped_rank_is_named_and_ended(tiny: Tiny) -> None:
    """By its silence, not by the patience of an exchange."""
    executor, layout = executor_of(tiny, rank_timeout=2.0), resolved_for(tiny).kv
    [pid] = executor.pids
    os.kill(pid, signal.SIGSTOP)
    plan = StepPlan(step=0, admitted=[dummy_sequence(0, 4, layout)], rows=[0], counts=[4], num_sampling=1)
    with pytest.raises(RuntimeError):
        executor.execute(plan).result()
    with pytest.raises(RankLost, match=rf"rank 1 \(process {pid}\) is lost: it hung: it was silent for 2 s"):
        executor.reset()
    executor.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_rank_that_throws_is_quoted(tiny: Tiny) -> None:
    executor = executor_of(tiny)
    nonsense = StepPlan(step=0, rows=[10_000], counts=[1], num_sampling=1)
    with pytest.raises(Exception, match=r".+"):
        executor.execute(nonsense).result()
    with pytest.raises(RankLost, match=r"rank 1 .* is lost: it threw \w+"):
        executor.reset()
    executor.close()


def test_closing_leaves_no_process(tiny: Tiny) -> None:
    executor = executor_of(tiny)
    [pid] = executor.pids
    executor.close()
    executor.close()
    assert not Path(f"/proc/{pid}").exists()


def test_ranks_end_with_the_engine(tiny: Tiny) -> None:
    """Even one that is killed and closes nothing."""
    code = (
        "import os, sys\nfrom tests.executor.test_process import Tiny, executor_of\nfrom pathlib import Path\n"
        "print(*executor_of(Tiny(Path(sys.argv[1]), None)).pids, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    engine = subprocess.run([sys.executable, "-c", code, str(tiny.path)], stdout=subprocess.PIPE, check=False)
    assert engine.returncode == -signal.SIGKILL
    [pid] = map(int, engine.stdout.split())
    gone = os.pidfd_open(pid) if Path(f"/proc/{pid}").exists() else None
    if gone is not None:
        assert select.select([gone], [], [], 60)[0]
        os.close(gone)


def test_a_rank_removes_the_meeting_of_a_killed_engine(tiny: Tiny, tmp_path: Path) -> None:
    """It has arrived, and waits there for a first rank that is gone."""
    folder = tmp_path / "quire-ranks-x"
    folder.mkdir()
    asked = EngineConfig.from_flat(model=str(tiny.path), tensor_parallel_size=2)
    meeting = str(folder / "meeting")
    rank = RankProcess(RankSettings(1, str(tiny.path), asked, cpu_facts(), meeting, 0, RankPlace(1, 2)))
    rank.wait_until_arrived()
    process = rank._process
    assert process.stdin is not None
    process.stdin.close()  # what a killed process's pipes are
    assert process.wait(timeout=60) == 0
    assert not folder.exists()
    rank.close()


def test_settings_that_do_not_go_with_ranks_are_refused(tiny: Tiny) -> None:
    facts = read_model_facts(str(tiny.path))
    for settings, told in (
        ({"distributed_executor_backend": "process"}, "but the model runs on one device"),
        ({"tensor_parallel_size": 2, "compile": True, "cpu_compute": "exact"}, "--compile is for models on one device"),
        (
            {"tensor_parallel_size": 2, "enable_lora": True, "lora_targets": "layers,embedding,head"},
            "--lora-targets has embedding and head, whose adapters are for models on one device so far",
        ),
        (
            {
                "tensor_parallel_size": 2,
                "speculative_config": '{"method": "draft_model", "model": "x", "draft_tensor_parallel_size": 4}',
            },
            "draft_tensor_parallel_size 4, but --tensor-parallel-size is 2, .* on every rank; give 1 or 2",
        ),
        ({"tensor_parallel_size": 2, "batch_invariant": True}, "--batch-invariant cannot be kept here"),
    ):
        with pytest.raises(ConfigError, match=told):
            resolve(EngineConfig.from_flat(model=str(tiny.path), **settings), facts, cpu_facts())
