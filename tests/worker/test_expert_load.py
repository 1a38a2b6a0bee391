"""Tokens of each expert are counted wherever a model computes: in torch, in the native core, and after its torch-free
start; on GPUs within graphs, without the spare rows that fill them up.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from quire.core.expert_load import ExpertLoad
from quire.core.plan import StepPlan
from quire.layers.router import Router
from quire.worker.dummy import dummy_sequence
from quire.worker.start import start_worker
from quire.worker.worker import Worker
from tests.ops.cpu.machines import needs_core
from tests.tiny_model import make_text_model
from tests.worker.test_cpu_core import resolved_for

ASKED = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "block_size": 4}


def started(path: Path, compute: str, device: str = "cpu", model: str = "deepseek_v2-lite") -> Worker:
    make_text_model(path, model)
    resolved = resolved_for(path, cpu_compute=compute, **ASKED)
    return start_worker(path, replace(resolved, tensor_share=1 << 30), device=torch.device(device))


def run(worker: Worker) -> None:
    """A prompt of six tokens and three more."""
    layout = worker._layout
    worker.start(
        StepPlan(step=0, admitted=[dummy_sequence(0, 9, layout)], rows=[0], counts=[6], num_sampling=1)
    ).result()
    for step in range(1, 4):
        worker.start(StepPlan(step=step, rows=[0], counts=[1], num_sampling=1)).result()


def load_of(worker: Worker) -> ExpertLoad:
    found = worker.expert_load()
    assert found is not None
    return found


def test_torch_counts_what_routers_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = started(tmp_path, "exact")
    chosen: dict[Router, list[Tensor]] = {}
    forward = Router.forward

    def watched(self: Router, *given: object) -> tuple[Tensor, Tensor]:
        ids, weights = forward(self, *given)  # type: ignore[arg-type]
        chosen.setdefault(self, []).append(ids)
        return ids, weights

    monkeypatch.setattr(Router, "forward", watched)
    run(worker)
    found = load_of(worker)
    assert found.layers == (1, 2, 3), "the first layer of this model has no experts"
    wanted = [torch.cat(each).flatten().bincount(minlength=found.counts.shape[1]) for each in chosen.values()]
    assert np.array_equal(found.counts, torch.stack(wanted).numpy())
    assert len(set(found.counts.sum(axis=1)[:-1])) == 1, "of all but the last layer, all tokens"


@needs_core
def test_the_core_counts_alike(tmp_path: Path) -> None:
    loads = []
    for compute in ("exact", "fast"):
        worker = started(tmp_path / compute, compute, model="qwen3_moe")
        run(worker)
        loads.append(load_of(worker))
    assert loads[0].layers == loads[1].layers
    # the core computes the last layer of all tokens, torch that of those that sample
    assert np.array_equal(loads[0].counts[:-1], loads[1].counts[:-1])


def test_a_model_without_experts_has_no_load(tmp_path: Path) -> None:
    assert started(tmp_path, "exact", model="llama").expert_load() is None


@pytest.mark.gpu
def test_a_gpu_counts_in_graphs_and_leaves_spare_rows_out(tmp_path: Path) -> None:
    worker = started(tmp_path, "exact", "cuda", "qwen3_moe")
    layout = worker._layout
    rows = [0, 1, 2]  # a graph of four
    admitted = [dummy_sequence(row, 9, layout) for row in rows]
    before = None
    for step in range(6):
        counts = [6] * 3 if not step else [1] * 3
        plan = StepPlan(step=step, admitted=admitted if not step else [], rows=rows, counts=counts, num_sampling=3)
        worker.start(plan).result()
        if step == 3:  # by now there is a graph
            torch.cuda.synchronize()
            load_of(worker)
            torch.cuda.synchronize()
            before = load_of(worker).counts.sum(axis=1)
            torch.cuda.synchronize()
    load_of(worker)
    torch.cuda.synchronize()
    after = load_of(worker).counts.sum(axis=1)
    top_k = worker._model.spec.layers[-1].mlp.routing.top_k  # type: ignore[union-attr]
    assert (after - before == 2 * 3 * top_k).all()
