"""Vectors of prompts, whichever way their tokens are spread over steps."""

import pytest
import torch
from torch import Tensor

from quire.core.plan import Admission, StepPlan
from quire.core.pooling import POOLINGS
from quire.core.pooling_params import PoolingParams
from quire.core.request import NO_ANSWER
from quire.worker.readouts import Readouts

CPU = torch.device("cpu")
HIDDEN = torch.arange(20.0).reshape(10, 2).pow(2) + 1


def admission(row: int, params: PoolingParams | None, num_prompt: int) -> Admission:
    tokens = list(range(num_prompt))
    return Admission(row, f"r{row}", 0, NO_ANSWER, tokens, num_prompt, 0, [[]], pooling=params)


def make(*params: PoolingParams | None, length: int = 5) -> Readouts:
    readouts = Readouts(4, 2, CPU)
    for row, asked in enumerate(params):
        readouts.admit(admission(row, asked, length))
    return readouts


def read(readouts: Readouts, chunks: list[int], hidden: Tensor = HIDDEN) -> list[list[float]]:
    """What is read off row 0, whose tokens come in these chunks."""
    done = 0
    for chunk in chunks:
        pooled = readouts.take(StepPlan(step=1, rows=[0], counts=[chunk]), hidden[done : done + chunk], [done + chunk])
        done += chunk
        assert bool(pooled.rows()) is (done == sum(chunks))
    return pooled.rows()[0]


@pytest.mark.parametrize("chunks", [[5], [1, 4], [2, 2, 1], [1] * 5])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_vector_is_the_same_however_its_prompt_is_cut(pooling: str, chunks: list[int]) -> None:
    whole = HIDDEN[:5]
    expected = {"mean": whole.mean(0), "last": whole[-1], "cls": whole[0]}[pooling]
    [found] = read(make(PoolingParams("embed", pooling, normalize=False)), chunks)
    assert found == pytest.approx(expected.tolist())
    [unit] = read(make(PoolingParams("embed", pooling)), chunks)
    assert unit == pytest.approx((expected / expected.norm()).tolist())


@pytest.mark.parametrize("chunks", [[5], [2, 3]])
def test_vectors_of_all_tokens(chunks: list[int]) -> None:
    assert read(make(PoolingParams("token_embed", normalize=False)), chunks) == HIDDEN[:5].tolist()
    unit = read(make(PoolingParams("token_embed")), chunks)
    assert [sum(x * x for x in row) for row in unit] == pytest.approx([1.0] * 5)


def test_rows_of_one_step_have_each_what_they_asked_for() -> None:
    mean, last = PoolingParams("embed", "mean", normalize=False), PoolingParams("embed", "last", normalize=False)
    readouts = make(mean, None, last, length=3)
    # row 1 answers and row 0 goes on in the next step
    plan = StepPlan(step=1, rows=[1, 2, 0], counts=[1, 3, 2], num_sampling=1)
    pooled = readouts.take(plan, HIDDEN[:6], [2, 9, 3])
    assert pooled.rows() == {1: [HIDDEN[3].tolist()]}
    pooled = readouts.take(StepPlan(step=2, rows=[0], counts=[1]), HIDDEN[6:7], [3])
    assert pooled.rows() == {0: [pytest.approx(HIDDEN[4:7].mean(0).tolist())]}


def test_a_row_that_starts_over_forgets_what_it_had() -> None:
    asked = PoolingParams("embed", "mean", normalize=False)
    readouts = make(asked)
    readouts.take(StepPlan(step=1, rows=[0], counts=[3]), HIDDEN[5:8], [3])
    readouts.release(0)
    assert not readouts.are_asked_for
    readouts.admit(admission(0, asked, 5))
    assert read(readouts, [5]) == [pytest.approx(HIDDEN[:5].mean(0).tolist())]
