"""Beam search on a real scheduler: its width, its forks, its end."""

from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sampling_params import SamplingParams
from quire.engine.assemble import make_scheduler
from quire.kvcache.invariants import check
from quire.simulation.beams import BeamSearch
from quire.simulation.workload import END, SimulatedRequest
from tests.simulation.setups import make_setup


def test_width_is_kept_until_the_end() -> None:
    scheduler = make_scheduler(make_setup().resolved)
    request = Request(
        id="a", prompt=Prompt(tuple(range(9))), params=SamplingParams(max_tokens=100), eos_token_ids=(END,)
    )
    [first] = scheduler.add(request)
    search = BeamSearch(SimulatedRequest(0, 0.0, 9, 100, beam_width=4), first)
    forks = 0
    for step in range(30):
        plan = scheduler.schedule(0.0)
        scheduler.update(StepResult(step=plan.step, tokens=[7] * plan.num_sampling))
        forks += len(search.advance(scheduler))
        check(scheduler.kv)
        assert plan.num_sampling == (1 if step == 0 else 4)
    assert forks > 10
    plan = scheduler.schedule(0.0)
    scheduler.update(StepResult(step=plan.step, tokens=[END] * plan.num_sampling))
    assert search.advance(scheduler) == []
    ended = [seq for seq in scheduler.take_finished() if seq.num_output == 31]
    assert len(ended) == 4
    scheduler.schedule(0.0)
    assert not scheduler.has_work


def test_a_beam_that_ends_is_not_replaced() -> None:
    scheduler = make_scheduler(make_setup().resolved)
    request = Request(id="a", prompt=Prompt((1, 2, 3)), params=SamplingParams(max_tokens=100), eos_token_ids=(END,))
    [first] = scheduler.add(request)
    search = BeamSearch(SimulatedRequest(0, 0.0, 3, 100, beam_width=3), first)
    sizes = []
    for ends in (0, 0, 1, 1, 0, 1):
        plan = scheduler.schedule(0.0)
        sizes.append(plan.num_sampling)
        tokens = [END] * ends + [7] * (plan.num_sampling - ends)
        scheduler.update(StepResult(step=plan.step, tokens=tokens))
        search.advance(scheduler)
    assert sizes == [1, 3, 3, 2, 1, 1]
