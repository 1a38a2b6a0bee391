"""Which logits are a prompt's: those behind its last token, however it came and whatever else is in the step."""

from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor

from quire.core.plan import Admission, StepPlan
from quire.worker.dummy import dummy_sequence
from quire.worker.start import start_worker
from tests.tiny_model import make_text_model
from tests.worker.test_cpu_core import resolved_for


def test_an_answer_s_first_token_is_drawn_from_its_prompt_s_logits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_text_model(tmp_path, "llama")
    asked = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "block_size": 4}
    resolved = resolved_for(tmp_path, cpu_compute="exact", **asked)
    worker = start_worker(tmp_path, resolved, device=torch.device("cpu"))
    compute, told = worker._logits, list[tuple[int, range]]()

    def logits(hidden: Tensor, prompts: range = range(0)) -> Tensor:
        told.append((len(hidden), prompts))
        return compute(hidden, prompts)

    monkeypatch.setattr(worker, "_logits", logits)

    def admission(row: int, **given: object) -> Admission:
        return msgspec.structs.replace(
            dummy_sequence(row, 6, resolved.kv), tables=[[2 * row + 1, 2 * row + 2]], **given
        )

    for plan in (
        StepPlan(step=0, admitted=[admission(0), admission(1)], rows=[0, 1], counts=[6, 4], num_sampling=1),
        StepPlan(step=1, admitted=[admission(2)], rows=[0, 1, 2], counts=[1, 2, 6], num_sampling=3),
        StepPlan(step=2, rows=[0, 1, 2], counts=[1, 1, 1], num_sampling=3),
        # computed anew: a prompt of four and two tokens of its answer, which a plan has before ends of prompts
        StepPlan(step=3, released=[0, 1], admitted=[admission(0, num_prompt=4)], rows=[0], counts=[4]),
        StepPlan(step=4, admitted=[admission(1)], rows=[0, 2, 1], counts=[2, 1, 6], num_sampling=3),
    ):
        worker.start(plan).result()
    assert told == [(1, range(1)), (3, range(1, 3)), (3, range(3, 3)), (3, range(2, 3))]
