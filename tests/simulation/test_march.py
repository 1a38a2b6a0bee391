"""Marching rows: the same as rows that are counted one by one."""

from random import Random

from quire.core.plan import Admission, StepPlan
from quire.core.sampling_params import SamplingParams
from quire.simulation.march import March
from quire.simulation.row import Row
from quire.simulation.workload import END


def make_row(number: int, computed: int, slots: int, end: int) -> Row:
    row = Row(Admission(number, str(number), 0, SamplingParams(), [1] * (computed + 1), 1, computed, [[]]), end - 1)
    row.slots = slots
    return row


def test_rows_come_march_and_go() -> None:
    random, march = Random(0), March()
    rows: dict[int, Row] = {}
    expected: dict[int, int] = {}
    for step in range(400):
        for number in [number for number in rows if random.random() < 0.1]:
            assert march.leave(rows[number])
            assert rows[number].computed == expected.pop(number)
            assert rows[number].known == rows[number].computed + 1
            del rows[number]
        if random.random() < 0.5:
            number = 1000 + step
            rows[number] = make_row(number, random.randrange(50), slots=1000, end=random.randrange(50, 120))
            expected[number] = rows[number].computed
            march.join(rows[number])
        assert march.context == sum(expected.values())
        assert march.leads(StepPlan(step=step, rows=list(rows), counts=[1] * len(rows), num_sampling=len(rows)))
        tokens, short = march.advance()
        assert not short
        for number, token in zip(rows, tokens, strict=True):
            expected[number] += 1
            assert (token == END) == (expected[number] + 1 >= rows[number].end)


def test_a_row_without_room_is_reported_once_it_needs_it() -> None:
    march, row = March(), make_row(0, computed=3, slots=5, end=100)
    march.join(row)
    assert [march.advance()[1] for _ in range(3)] == [[], [], [row]]


def test_more_room_in_time_is_no_problem() -> None:
    march, row = March(), make_row(0, computed=3, slots=4, end=100)
    march.join(row)
    for slots in range(5, 30):
        assert march.advance()[1] == []
        row.slots = slots


def test_a_different_batch_is_noticed() -> None:
    march = March()
    for number in (0, 1):
        march.join(make_row(number, 1, 100, 100))
    assert march.leads(StepPlan(step=1, rows=[0, 1, 2], counts=[1, 1, 5], num_sampling=2))
    assert not march.leads(StepPlan(step=1, rows=[1, 0], counts=[1, 1], num_sampling=2))
    assert not march.leads(StepPlan(step=1, rows=[0], counts=[1], num_sampling=1))
    assert not march.leads(StepPlan(step=1, rows=[0, 1], counts=[1, 2], num_sampling=2))
    assert not march.leads(StepPlan(step=1, rows=[0, 1], counts=[1, 1], num_sampling=1))
    march.disperse()
    assert len(march) == march.context == 0
    assert not march.leave(make_row(0, 1, 1, 1))
