"""A step is given to a GPU without waiting for the one that runs there: the device would idle meanwhile."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from quire.core.plan import Admission, StepPlan, TableDelta
from quire.core.sampling_params import SamplingParams
from quire.worker.dummy import dummy_sequence
from quire.worker.start import start_worker
from tests.tiny_model import make_text_model
from tests.worker.test_cpu_core import resolved_for

pytestmark = pytest.mark.gpu


@contextmanager
def waiting_fails() -> Iterator[None]:
    with warnings.catch_warnings(action="ignore"):  # torch says that it does not find every way to wait
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


GREEDY = SamplingParams(temperature=0.0)


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("llama", GREEDY),
        ("llama", SamplingParams(temperature=0.7, top_p=0.9, top_k=5, seed=1)),
        ("llama", SamplingParams(temperature=0.7, min_p=0.1, presence_penalty=0.5, min_tokens=2)),
        ("qwen2_moe", GREEDY),
        ("deepseek_v2-lite", GREEDY),
        ("deepseek_v3", GREEDY),
    ],
    ids=["greedy", "sampled", "penalized", "experts", "latents", "latents of queries"],
)
def test_prompts_and_answers_come_while_others_run(tmp_path: Path, model: str, params: SamplingParams) -> None:
    make_text_model(tmp_path, model)
    asked = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "block_size": 4}
    resolved = replace(resolved_for(tmp_path, cpu_compute="exact", **asked), tensor_share=1 << 30)
    worker = start_worker(tmp_path, resolved, device=torch.device("cuda"))

    def admission(row: int) -> Admission:
        dummy = dummy_sequence(row, 6, resolved.kv, params)
        return msgspec.structs.replace(dummy, tables=[[2 * row + 1, 2 * row + 2]])

    plans = [
        StepPlan(step=0, admitted=[admission(0), admission(1)], rows=[0, 1], counts=[6, 4], num_sampling=1),
        StepPlan(step=1, admitted=[admission(2)], rows=[0, 1, 2], counts=[1, 2, 6], num_sampling=3),
        StepPlan(
            step=2,
            table_deltas=[TableDelta(row=0, start=2, tables=[[7]])],
            rows=[0, 1, 2],
            counts=[1, 1, 1],
            num_sampling=3,
        ),
        StepPlan(step=3, released=[1], rows=[0, 2], counts=[1, 1], num_sampling=2),
    ]
    for plan in plans:  # compiles what would wait while it does
        worker.start(plan).result()
    worker.start(StepPlan(step=4, released=[0, 2]))
    with waiting_fails():
        running = [worker.start(plan) for plan in plans]
    assert [len(step.result().tokens) for step in running] == [1, 3, 3, 2]
