"""The simulated device: follows plans, ends answers where they end, and refuses plans that cannot be."""

from typing import Any

import pytest

from quire.core.plan import Admission, Move, StepPlan, TableDelta
from quire.core.sampling_params import SamplingParams
from quire.simulation.cost import CostModel
from quire.simulation.device import ImpossiblePlan, SimulatedDevice
from quire.simulation.workload import END
from tests.simulation.setups import DEVICE, MODEL, make_setup


def make_device(**lengths: int) -> SimulatedDevice:
    return SimulatedDevice(CostModel(MODEL, DEVICE, make_setup().resolved), lengths, block_size=4, num_blocks=50)


def admission(row: int, request_id: str, tokens: int, blocks: list[int], computed: int = 0) -> Admission:
    return Admission(row, request_id, 0, SamplingParams(), [5] * tokens, tokens, computed, [blocks])


def plan(step: int, **parts: Any) -> StepPlan:
    return StepPlan(step=step, **parts)


def test_a_life() -> None:
    device = make_device(a=3)
    first = device.execute(plan(1, admitted=[admission(0, "a", 6, [1, 2])], rows=[0], counts=[4]))
    assert first.tokens == []
    second = device.execute(plan(2, rows=[0], counts=[2], num_sampling=1))
    third = device.execute(plan(3, rows=[0], counts=[1], num_sampling=1))
    fourth = device.execute(plan(4, rows=[0], counts=[1], num_sampling=1))
    assert second.tokens == third.tokens != [END]
    assert fourth.tokens == [END]
    assert first.elapsed > 0
    device.execute(plan(5, released=[0]))


def test_an_answer_of_one_token_ends_at_once() -> None:
    device = make_device(a=1)
    assert device.execute(
        plan(1, admitted=[admission(0, "a", 3, [1])], rows=[0], counts=[3], num_sampling=1)
    ).tokens == [END]


def test_sequences_say_different_things() -> None:
    device = make_device(a=9, b=9)
    admitted = [admission(0, "a", 2, [1]), admission(1, "b", 2, [2])]
    tokens = device.execute(plan(1, admitted=admitted, rows=[0, 1], counts=[2, 2], num_sampling=2)).tokens
    assert len(set(tokens)) == 2


def test_moves_take_time() -> None:
    device = make_device()
    swapped = device.execute(plan(1, swap_out=[Move(1, 1)]))
    copied = device.execute(plan(2, copies=[Move(1, 2)]))
    assert swapped.elapsed > copied.elapsed > 0


def test_order_of_rows_may_change() -> None:
    device = make_device(a=5, b=5)
    admitted = [admission(0, "a", 2, [1, 3]), admission(1, "b", 2, [2, 4])]
    first = device.execute(plan(1, admitted=admitted, rows=[0, 1], counts=[2, 2], num_sampling=2)).tokens
    second = device.execute(plan(2, rows=[1, 0], counts=[1, 1], num_sampling=2)).tokens
    assert second == first[::-1]


ADMIT = {"admitted": [admission(0, "a", 6, [1, 2])]}


@pytest.mark.parametrize(
    ("plans", "message"),
    [
        ([{"released": [3]}], "releases row 3"),
        ([{"rows": [3], "counts": [1]}], "computes row 3"),
        ([{"table_deltas": [TableDelta(3, 0, [[1]])]}], "table of row 3"),
        ([ADMIT, ADMIT], "row 0 to two"),
        ([ADMIT | {"rows": [0], "counts": [7], "num_sampling": 1}], "7 tokens of a/0 from 0 on, but it has 6"),
        ([ADMIT | {"rows": [0], "counts": [6]}], "computes 6 tokens"),
        ([ADMIT | {"rows": [0], "counts": [5], "num_sampling": 1}], "computes 5 tokens"),
        ([ADMIT | {"rows": [0], "counts": [0]}], "computes 0 tokens"),
        ([ADMIT, {"table_deltas": [TableDelta(0, 3, [[7]])]}], "has a hole before block 3"),
        ([ADMIT, {"table_deltas": [TableDelta(0, 2, [[51]])]}], "a block that is not there"),
        ([ADMIT, {"table_deltas": [TableDelta(0, 2, [[3], []])]}], "groups of different length"),
        (
            [ADMIT | {"rows": [0], "counts": [6], "num_sampling": 1}]
            + 3 * [{"rows": [0], "counts": [1], "num_sampling": 1}],
            "a token of a/0 that has no block",
        ),
    ],
)
def test_impossible_plans(plans: list[dict[str, Any]], message: str) -> None:
    device = make_device(a=100)
    *possible, impossible = [plan(step, **parts) for step, parts in enumerate(plans)]
    for each in possible:
        device.execute(each)
    with pytest.raises(ImpossiblePlan, match=message):
        device.execute(impossible)
