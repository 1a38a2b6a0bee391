"""The largest step: as large as the settings allow, with words for what does not fit, and nothing left behind."""

import logging
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from quire import ConfigError
from quire.config.resolved import Resolved
from quire.core.plan import StepPlan
from quire.core.result import StepResult
from quire.ops.functional import group_adapters
from quire.ops.lora_tensors import AdapterRows
from quire.worker.dummy import dummy_sequence
from quire.worker.largest_step import take_largest_step
from quire.worker.running_step import RunningStep
from quire.worker.start import start_worker
from quire.worker.worker import Worker
from tests.tiny_model import make_text_model
from tests.worker.test_cpu_core import resolved_for

SHARE = 1_000_000


def without_its_time(result: StepResult) -> StepResult:
    return msgspec.structs.replace(result, elapsed=0.0)


@pytest.fixture
def resolved(tmp_path: Path) -> Resolved:
    make_text_model(tmp_path, "llama")
    asked = {"max_num_seqs": 5, "max_num_batched_tokens": 52, "block_size": 4}
    return replace(resolved_for(tmp_path, cpu_compute="exact", **asked), tensor_share=SHARE)


@pytest.fixture
def worker(resolved: Resolved, tmp_path: Path) -> Worker:
    return start_worker(tmp_path, resolved, device=torch.device("cpu"))


def test_it_has_all_sequences_and_their_tokens(
    worker: Worker, resolved: Resolved, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[StepPlan] = []
    start = worker.start

    def watched(plan: StepPlan) -> RunningStep:
        plans.append(plan)
        return start(plan)

    monkeypatch.setattr(worker, "start", watched)
    take_largest_step(worker, resolved, lambda: 0)
    assert [(plan.counts, plan.num_sampling, plan.released) for plan in plans] == [
        ([10] * 5, 5, []),
        ([], 0, [0, 1, 2, 3, 4]),
    ]


def test_all_have_an_adapter_where_there_may_be_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_text_model(tmp_path, "llama")
    asked = {"max_num_seqs": 5, "max_num_batched_tokens": 52, "block_size": 4}
    resolved = resolved_for(tmp_path, cpu_compute="exact", enable_lora=True, max_loras=2, max_lora_rank=16, **asked)
    worker = start_worker(tmp_path, resolved, device=torch.device("cpu"))
    added: list[int] = []

    def watched(slots: torch.Tensor, num_slots: int) -> AdapterRows:
        added.append(int((slots >= 0).sum()))
        return group_adapters(slots, num_slots)

    monkeypatch.setattr("quire.worker.row_adapters.group_adapters", watched)
    take_largest_step(worker, resolved, lambda: 0)
    assert added == [50, 5], "all tokens of the step, and those that are sampled from"
    assert worker._row_adapters is not None
    assert not worker._row_adapters.are_used_by(range(5))


def test_nothing_is_left_behind(worker: Worker, resolved: Resolved, tmp_path: Path) -> None:
    sequence = dummy_sequence(0, 6, resolved.kv)
    first = StepPlan(step=1, admitted=[sequence], rows=[0], counts=[6], num_sampling=1)
    fresh = start_worker(tmp_path, resolved, device=torch.device("cpu"))
    take_largest_step(worker, resolved, lambda: 0)
    found, wanted = (without_its_time(each.start(first).result()) for each in (worker, fresh))
    assert found == wanted


def test_what_takes_more_than_planned_is_told(
    worker: Worker, resolved: Resolved, caplog: pytest.LogCaptureFixture
) -> None:
    take_largest_step(worker, resolved, lambda: SHARE)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    take_largest_step(worker, resolved, lambda: SHARE + 250_000)
    assert "a step of 50 tokens of 5 sequences" in caplog.text
    assert "250.00 kB more than" in caplog.text
    assert "lower --max-num-batched-tokens" in caplog.text


def test_what_does_not_fit_is_refused_with_what_to_lower(
    worker: Worker, resolved: Resolved, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(plan: StepPlan) -> RunningStep:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(worker, "start", full)
    with pytest.raises(ConfigError, match=r"does not fit .*2\.00 GiB.* --max-num-batched-tokens"):
        take_largest_step(worker, resolved, lambda: 0)
