"""What the host knows of a plan's rows: which of them have tokens from before it."""

import pytest

from quire.core.pasts import Pasts
from quire.core.plan import StepPlan
from quire.worker.plan_lengths import PlanLengths


@pytest.mark.parametrize(
    ("computed", "counts", "expected"),
    [
        ([0, 0], [5, 3], Pasts(0, 0, 0, 0)),
        ([9, 4], [1, 1], Pasts(2, 2, 2, 2)),
        ([9, 4, 0, 0], [1, 3, 6, 2], Pasts(2, 4, 2, 4)),
        ([9, 0, 4, 0], [1, 6, 3, 2], Pasts(3, 10, 1, 1)),
    ],
    ids=["prompts", "decodes", "apart", "mixed"],
)
def test_pasts(computed: list[int], counts: list[int], expected: Pasts) -> None:
    lengths = PlanLengths(4)
    lengths.computed[: len(computed)] = computed
    plan = StepPlan(step=0, rows=list(range(len(counts))), counts=counts, num_sampling=0)
    lengths.count(plan)
    assert lengths.pasts(plan) == expected
