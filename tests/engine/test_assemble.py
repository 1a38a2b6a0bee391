"""From resolved settings to a scheduler: every policy, its options, the pacer and the time-outs arrive."""

from dataclasses import replace

import pytest

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.sequence import Sequence
from quire.engine.assemble import make_scheduler
from quire.scheduler.policies.choose import POLICIES
from quire.scheduler.policies.priority import Priority
from quire.simulation.shapes import SHAPES
from tests.simulation.setups import make_setup


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_can_be_made(policy: str) -> None:
    asked = EngineConfig.from_flat(model="llama-8b", scheduling_policy=policy)
    resolved = resolve(asked, SHAPES["llama-8b"], DEVICES["h200"])
    scheduler = make_scheduler(resolved)
    assert scheduler.limits == resolved.limits
    assert scheduler.kv.device.pool.num_blocks == resolved.kv.num_blocks
    assert not scheduler.has_work


def sequence(number: int, arrival: float, priority: int) -> Sequence:
    params = SamplingParams(priority=priority)
    return Sequence(number, Request(id=str(number), prompt=Prompt((1,)), params=params, arrival=arrival), 0, 10)


@pytest.mark.parametrize(("ageing", "old_wins"), [(1.0, True), (0.0, False)])
def test_without_ageing_priority_is_all_that_counts(ageing: float, old_wins: bool) -> None:
    resolved = make_setup(policy="priority").resolved
    settings = replace(resolved.policy_settings, priority_ageing=ageing)
    policy = make_scheduler(replace(resolved, policy_settings=settings))._queue
    assert isinstance(policy, Priority)
    old, new = sequence(0, arrival=0.0, priority=0), sequence(1, arrival=100.0, priority=-1)
    assert (policy.rank(old) < policy.rank(new)) == old_wins


def test_time_outs_and_targets_reach_it() -> None:
    resolved = make_setup(target_itl_ms=20.0, queue_timeout=5.0).resolved
    scheduler = make_scheduler(resolved)
    assert scheduler._pacer is not None
    scheduler.add(Request(id="a", prompt=Prompt((1, 2)), params=SamplingParams()))
    scheduler.schedule(6.0)
    assert [seq.status.name for seq in scheduler.take_finished()] == ["QUEUE_TIMEOUT"]


def test_what_is_asked_of_drafts_reaches_it() -> None:
    drafting = {"method": "ngram", "num_speculative_tokens": 3, "disable_by_batch_size": 2}
    asked = EngineConfig.from_flat(model="llama-8b", speculative_config=drafting)
    resolved = resolve(asked, SHAPES["llama-8b"], DEVICES["h200"])
    assert any("none where a step has more than 2 sequences" in choice.reason for choice in resolved.choices)
    length = make_scheduler(resolved)._draft_length
    assert length is not None
    for decodes in (2, 3):
        for _ in range(50):  # as on a device to which drafts cost nothing
            chosen = length.choose(decodes)
            length.observe(decodes, chosen, [chosen] * decodes, 1.0)
        assert (length.choose(decodes) == 3) == (decodes == 2)
