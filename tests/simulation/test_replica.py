"""A replica on a virtual clock: every request ends once, with every token it asked for, under every policy."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.config.resolved import KVGroup
from quire.simulation.metrics import Metrics
from quire.simulation.replica import Replica
from quire.simulation.workload import SimulatedRequest
from tests.simulation.setups import DEVICE, make_requests, make_setup, run

POLICIES = ("fcfs", "sjf", "round-robin", "priority", "fair")
PREEMPTIONS = ("recompute", "swap", "auto")


def asked_tokens(requests: list[SimulatedRequest]) -> int:
    return sum(request.output_tokens * request.n for request in requests)


@pytest.mark.parametrize("preemption", PREEMPTIONS)
@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_lost_when_memory_is_short(policy: str, preemption: str) -> None:
    setup = make_setup(policy=policy, preemption=preemption, num_blocks=20, num_cpu_blocks=30)
    requests = make_requests(30, prompt=12, output=24, every=0.002)
    metrics = run(setup, requests)
    assert metrics.output_tokens == asked_tokens(requests)
    assert metrics.reasons == {"stop": 30}
    assert metrics.preempted_recompute + metrics.preempted_swap > 0
    assert metrics.input_tokens == sum(request.input_tokens for request in requests)


@st.composite
def workloads(draw: st.DrawFn) -> list[SimulatedRequest]:
    times = sorted(draw(st.lists(st.floats(0, 0.2), min_size=1, max_size=12)))
    return [
        SimulatedRequest(
            number=number,
            arrival=time,
            input_tokens=draw(st.integers(1, 60)),
            output_tokens=draw(st.integers(1, 40)),
            max_tokens=draw(st.sampled_from([None, 10, 100])),
            tenant=draw(st.sampled_from("ab")),
            priority=draw(st.integers(-1, 1)),
            hash_ids=tuple(draw(st.lists(st.integers(0, 2), max_size=3))),
            hash_block=draw(st.sampled_from([5, 8])),
            n=draw(st.sampled_from([1, 1, 3])),
        )
        for number, time in enumerate(times)
    ]


@given(
    workloads(),
    st.sampled_from(POLICIES),
    st.sampled_from(PREEMPTIONS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(KVGroup((0, 1)),), (KVGroup((0,)), KVGroup((1,), window=12))]),
)
def test_conservation(
    requests: list[SimulatedRequest],
    policy: str,
    preemption: str,
    async_steps: bool,
    caching: bool,
    groups: tuple[KVGroup, ...],
) -> None:
    setup = make_setup(
        policy=policy,
        preemption=preemption,
        async_steps=async_steps,
        enable_prefix_caching=caching,
        groups=groups,
        num_blocks=64,
        num_cpu_blocks=20,
        max_num_seqs=5,
        max_num_batched_tokens=24,
        max_model_len=128,
    )
    metrics = run(setup, requests)
    # a max_tokens that would not fit the cache is refused by the scheduler; all of these fit
    expected = sum(min(r.output_tokens, r.max_tokens or 1000, 128 - r.input_tokens) * r.n for r in requests)
    assert metrics.output_tokens == expected
    assert sum(metrics.reasons.values()) == sum(r.n for r in requests)


def ends(metrics: Metrics) -> tuple[Any, ...]:
    return metrics.output_tokens, metrics.input_tokens, metrics.reasons


def test_planning_ahead_changes_times_and_not_tokens() -> None:
    requests = make_requests(40, every=0.004, prompt=30, output=20)
    together = run(make_setup(async_steps=True), requests)
    apart = run(make_setup(async_steps=False), requests)
    assert ends(together) == ends(apart)
    assert together.end == pytest.approx(apart.end, rel=0.2)


def test_latencies_of_one_request_by_hand() -> None:
    setup = make_setup(async_steps=False, enable_prefix_caching=False)
    metrics = run(setup, [SimulatedRequest(0, 1.0, 10, 4)])
    weights, token = 2_000_000 / DEVICE.bandwidth, setup.resolved.kv.bytes_per_token / DEVICE.bandwidth
    prompt = 1e-3 + weights + 10 * token
    decodes = [1e-3 + weights + (10 + done + 1) * token for done in range(3)]
    tenant = metrics.tenants["default"]
    assert tenant.ttft.total == pytest.approx(prompt)
    assert tenant.queue.total == 0
    assert metrics.itl.total == pytest.approx(sum(decodes))
    assert metrics.itl.count == 3
    assert tenant.total.total == pytest.approx(prompt + sum(decodes))
    assert metrics.end == pytest.approx(1.0 + prompt + sum(decodes))
    assert metrics.steps == 4
    assert metrics.step_tokens == 13


def test_the_gap_of_a_preempted_sequence_is_the_whole_gap() -> None:
    setup = make_setup(policy="priority", max_num_seqs=1, async_steps=False)
    requests = [SimulatedRequest(0, 0.0, 8, 20), SimulatedRequest(1, 0.02, 8, 20, priority=-5)]
    metrics = run(setup, requests)
    assert metrics.paused == 1
    other = metrics.tenants["default"].total
    assert metrics.itl.most > 20 * 0.003, "it waited for all of the other's tokens"
    assert metrics.itl.total + metrics.tenants["default"].ttft.total == pytest.approx(other.total)


@pytest.mark.parametrize("async_steps", [True, False])
def test_every_token_but_the_first_has_a_gap(async_steps: bool) -> None:
    requests = make_requests(25, every=0.003, prompt=20, output=30)
    metrics = run(make_setup(async_steps=async_steps, num_blocks=40, num_cpu_blocks=40), requests)
    assert metrics.itl.count == asked_tokens(requests) - len(requests)
    tenant = metrics.tenants["default"]
    assert tenant.ttft.count == tenant.total.count == tenant.queue.count == len(requests)
    assert metrics.itl.total + tenant.ttft.total == pytest.approx(tenant.total.total)


def test_requests_that_can_never_run_are_refused_and_counted() -> None:
    requests = [
        SimulatedRequest(0, 0.0, 300, 5),
        SimulatedRequest(1, 0.0, 100, 5, max_tokens=150),
        SimulatedRequest(2, 0.0, 10, 5),
    ]
    metrics = run(make_setup(num_blocks=30), requests)
    tenant = metrics.tenants["default"]
    assert (tenant.refused, tenant.ended) == (2, 1)


def test_a_queue_time_out_ends_requests() -> None:
    setup = make_setup(max_num_seqs=1, queue_timeout=0.01)
    metrics = run(setup, make_requests(5, output=40))
    assert metrics.reasons["queue_timeout"] > 0
    assert sum(metrics.reasons.values()) == 5


def test_max_tokens_ends_answers() -> None:
    metrics = run(make_setup(), make_requests(5, output=30, max_tokens=7))
    assert metrics.reasons == {"length": 5}
    assert metrics.output_tokens == 35


def test_shared_prefixes_are_found() -> None:
    requests = make_requests(10, every=0.05, prompt=40, hash_ids=(1,), hash_block=32)
    metrics = run(make_setup(), requests)
    assert metrics.prefix_hits == 9
    assert metrics.prefix_tokens_saved >= 9 * 32
    without = run(make_setup(enable_prefix_caching=False), requests)
    assert without.prefix_queries == 0
    assert without.computed_tokens > metrics.computed_tokens


def test_samples_of_one_prompt_share_its_blocks() -> None:
    requests = [SimulatedRequest(number, 0.0, 40, 10, n=4) for number in range(2)]
    metrics = run(make_setup(), requests)
    assert metrics.output_tokens == 80
    assert metrics.kv.held_blocks < 0.6 * metrics.kv.unshared_blocks
    assert metrics.tenants["default"].ttft.count == 2, "the first of four is the one that counts"


def test_beams_share_more_than_prompts() -> None:
    requests = [SimulatedRequest(number, 0.0, 40, 16, beam_width=4) for number in range(2)]
    metrics = run(make_setup(), requests)
    assert metrics.reasons == {"stop": 8}
    assert metrics.dropped_beams > 0
    assert metrics.kv.held_blocks < 0.6 * metrics.kv.unshared_blocks


def test_waste_is_small_and_a_reservation_wastes_more() -> None:
    requests = make_requests(60, every=0.002, prompt=100, output=60)
    metrics = run(make_setup(num_blocks=4000, max_model_len=512), requests)
    waste = metrics.kv.wasted_slots / metrics.kv.allocated_slots
    assert 0 < waste < 0.04
    tally = metrics.reservations
    ways = [tally.waste(way) for way in (tally.exact, tally.power_of_two, tally.whole_context)]
    assert ways == sorted(ways)
    assert ways[0] > 4 * waste


def test_progress_is_told_of_every_request() -> None:
    told: list[int] = []
    Replica(make_setup()).run(make_requests(1203, prompt=2, output=7), told.append)
    assert sum(told) == 1203
    assert len(told) == 3


def batches() -> Iterator[SimulatedRequest]:
    yield SimulatedRequest(0, 0.0, 10, 5)
    yield SimulatedRequest(1, 100.0, 10, 5)


def test_requests_may_be_streamed_and_idle_time_is_skipped() -> None:
    metrics = Replica(make_setup()).run(batches())
    assert metrics.end > 100
    assert metrics.busy < 0.1
