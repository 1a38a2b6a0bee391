"""Warm-up while there are no requests: it captures the graphs that they would capture, and changes nothing else."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from quire.config.resolved import Resolved
from quire.core.plan import StepPlan
from quire.core.sampling_params import SamplingParams
from quire.worker.decode_graphs import DecodeGraphs
from quire.worker.dummy import dummy_sequence
from quire.worker.running_step import RunningStep
from quire.worker.shared_prefix import FEWEST
from quire.worker.start import start_worker
from quire.worker.warmup import warmup_steps
from quire.worker.worker import Worker
from tests.tiny_model import make_text_model
from tests.worker.test_cpu_core import resolved_for
from tests.worker.test_decode_graphs import ImitatedGraphs

ON_BOTH = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
ROWS = FEWEST + 1


@pytest.fixture
def resolved(tmp_path: Path) -> Resolved:
    make_text_model(tmp_path, "llama")
    asked = {"max_num_seqs": ROWS, "max_num_batched_tokens": 64, "block_size": 4}
    return replace(resolved_for(tmp_path, cpu_compute="exact", **asked), tensor_share=1 << 30)


def worker_with_graphs(path: Path, resolved: Resolved, device: str) -> Worker:
    worker = start_worker(path, resolved, device=torch.device(device))
    if device == "cpu":
        worker._graphs = ImitatedGraphs(worker._compute, worker._draw, ROWS, worker._rows.spare, worker._device)
        worker._warmup = warmup_steps(worker.start, worker._graphs, resolved.kv, may_share_prefix=False)
    return worker


def answers(worker: Worker, resolved: Resolved, params: SamplingParams) -> list[list[int]]:
    """Of one row, then of three, five tokens each."""
    found = []
    for rows in ([0], [0, 1, 2]):
        sequences = [
            msgspec.structs.replace(
                dummy_sequence(row, 3 + row, resolved.kv, params), tables=[[2 * row + 1, 2 * row + 2]]
            )
            for row in rows
        ]
        counts = [len(sequence.tokens) for sequence in sequences]
        plan = StepPlan(step=0, admitted=sequences, rows=rows, counts=counts, num_sampling=len(rows))
        drawn = [worker.start(plan).result().tokens]
        for _ in range(4):
            plan = StepPlan(step=0, rows=rows, counts=[1] * len(rows), num_sampling=len(rows))
            drawn.append(worker.start(plan).result().tokens)
        worker.start(StepPlan(step=0, released=rows))
        found.extend(list(tokens) for tokens in drawn)
    return found


@ON_BOTH
@pytest.mark.parametrize("params", [SamplingParams(temperature=0.0), SamplingParams(temperature=0.7, seed=3)])
def test_a_worker_that_warmed_up_answers_as_one_that_did_not(
    resolved: Resolved, tmp_path: Path, device: str, params: SamplingParams
) -> None:
    warm, other = (worker_with_graphs(tmp_path, resolved, device) for _ in range(2))
    while warm.warm_up():
        pass
    assert not warm.warm_up()
    assert answers(warm, resolved, params) == answers(other, resolved, params)


@ON_BOTH
def test_the_usual_sampling_modes_find_their_graphs(
    resolved: Resolved, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_with_graphs(tmp_path, resolved, device)
    while worker.warm_up():
        pass
    captured: list[object] = []
    monkeypatch.setattr(DecodeGraphs, "_capture", lambda _, place: captured.append(place))
    for params in (
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.5),
        SamplingParams(top_p=0.8),
        SamplingParams(min_p=0.1, logprobs=5),
        SamplingParams(temperature=0, presence_penalty=0.5, logit_bias={3: 1.0}, min_tokens=3, stop_token_ids=(4,)),
    ):
        answers(worker, resolved, params)
    assert captured == []
    answers(worker, resolved, SamplingParams(logprobs=100))
    assert captured != []  # this mode is captured when it comes


def test_no_row_stays_admitted_and_all_sizes_come(resolved: Resolved, tmp_path: Path) -> None:
    worker = worker_with_graphs(tmp_path, resolved, "cpu")
    graphs, sampling = worker._graphs, worker._sampling
    assert graphs is not None
    asked: list[tuple[int, bool]] = []
    graphs.warm_up = lambda size, mode, *, shared: asked.append((size, shared))  # type: ignore[method-assign]
    nobody = sampling.mode
    for _ in warmup_steps(worker.start, graphs, resolved.kv, may_share_prefix=True):
        assert sampling.mode == nobody
    assert {size for size, _ in asked} == set(graphs.sizes)
    assert asked[0][0] == ROWS
    assert {size for size, shared in asked if shared} == {size for size in graphs.sizes if size >= FEWEST}


def test_latents_are_looked_back_at(resolved: Resolved, tmp_path: Path) -> None:
    """By a chunk of several tokens after another of the same row."""
    worker = worker_with_graphs(tmp_path, resolved, "cpu")
    assert worker._graphs is not None
    worker._graphs.warm_up = lambda size, mode, *, shared: None  # type: ignore[method-assign]
    plans: list[StepPlan] = []

    def run(plan: StepPlan) -> RunningStep:
        plans.append(plan)
        return worker.start(plan)

    for latents in (False, True):
        plans.clear()
        list(warmup_steps(run, worker._graphs, resolved.kv, may_share_prefix=False, keeps_latents=latents))
        chunks = [plan for plan in plans if plan.rows and not plan.admitted]
        assert [plan.counts for plan in chunks] == [[4]] * latents
