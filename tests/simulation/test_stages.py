"""Stages of a pipeline on the virtual clock: what overlaps, what waits, and what a replica gains by it."""

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.plan import StepPlan
from quire.simulation.cost import CostModel, ModelWork
from quire.simulation.metrics import Metrics
from quire.simulation.replica import Replica, ReplicaSetup
from quire.simulation.shapes import SHAPES
from quire.simulation.stages import Stages
from tests.simulation.setups import make_requests


def decode(row: int) -> StepPlan:
    return StepPlan(step=1, rows=[row], counts=[1], num_sampling=1)


def test_stages_compute_different_steps_at_once() -> None:
    stages = Stages(2)
    assert stages.run(0.0, decode(0), 1.0, 0.25) == (1.25, 2.25)
    assert stages.run(0.0, decode(1), 1.0, 0.25) == (2.25, 3.25)  # it was passed on while the one before ran


def test_a_row_waits_for_its_token() -> None:
    stages = Stages(2)
    stages.run(0.0, decode(0), 1.0, 0.0)
    assert stages.run(0.0, decode(0), 1.0, 0.0) == (3.0, 4.0)


def test_one_stage_is_a_device_on_its_own() -> None:
    stages = Stages(1)
    assert stages.run(0.5, decode(0), 1.0, 9.0) == (0.5, 1.5)
    assert stages.run(0.5, decode(0), 1.0, 9.0) == (1.5, 2.5)


def simulated(stages: int, count: int, prompt: int = 50, output: int = 200) -> tuple[Metrics, ReplicaSetup]:
    model, device = SHAPES["llama-8b"], DEVICES["h100"]
    asked = EngineConfig.from_flat(model="llama-8b", pipeline_parallel_size=stages, max_num_batched_tokens=2048)
    setup = ReplicaSetup(resolve(asked, model, device), ModelWork.of(model), device)
    return Replica(setup).run(make_requests(count, prompt=prompt, output=output)), setup


def test_a_pipeline_computes_prompts_nearly_as_fast_as_two_devices() -> None:
    """And no faster: the last stage has nothing to do at first, and the first one at the end."""
    (one, _), (two, setup) = simulated(1, 200, prompt=1000, output=7), simulated(2, 200, prompt=1000, output=7)
    assert setup.resolved.num_stages == 2
    assert 1.8 < one.end / two.end < 2.0


def test_answers_gain_less_as_every_turn_reads_the_weights() -> None:
    """Both stages read theirs once for each half of the sequences."""
    (one, _), (two, _) = simulated(1, 256), simulated(2, 256)
    assert 0.9 < one.end / two.end < 1.5


def test_one_sequence_gains_nothing_but_pays_for_the_hops() -> None:
    (one, _), (two, setup) = simulated(1, 1), simulated(2, 1)
    overhead = 2 * setup.device.step_overhead
    cost = CostModel(setup.model, setup.device, setup.resolved)
    assert cost.hop_seconds(1) > 0
    assert one.end < two.end < one.end + (one.steps + 1) * (overhead + cost.hop_seconds(1))


@pytest.mark.parametrize("stages", [2, 4])
def test_every_token_comes(stages: int) -> None:
    assert simulated(stages, 40)[0].output_tokens == simulated(1, 40)[0].output_tokens
