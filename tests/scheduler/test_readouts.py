"""Prompts that are read out: in chunks beside streams, whole where the model looks ahead, in no stream's way."""

import msgspec
import pytest

from quire.core.errors import RequestTooLarge
from quire.core.status import Status
from quire.kvcache.invariants import check
from quire.scheduler.intake import StepUpdate
from quire.scheduler.readout_pace import STRETCH
from quire.scheduler.scheduler import Scheduler
from tests.scheduler.bookkeeping import ReferenceDevice, expected_readout, make_request, make_scheduler


def finish(scheduler: Scheduler, device: ReferenceDevice) -> dict[str, object]:
    """What is read off each request."""
    pooled: dict[int, object] = {}
    found: dict[str, object] = {}
    now = 0.0
    while scheduler.has_work:
        now += 1.0
        plan = scheduler.schedule(now)
        result = device.run(plan)
        if plan.rows:
            pooled |= scheduler.update(result).pooled
        for seq in scheduler.take_finished():
            found[seq.request.id] = pooled.get(seq.id, seq.status)
        check(scheduler.kv)
    return found


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_prompt_that_fills_the_context_is_read_in_chunks(pooling):
    scheduler = make_scheduler(num_blocks=33, max_num_batched_tokens=10)
    request = make_request("a", [1, 2, 3, 4] * 32, pooling=pooling)
    scheduler.add(request)
    assert finish(scheduler, ReferenceDevice(scheduler)) == {"a": expected_readout(request)}
    assert scheduler.kv.device.pool.num_used == 0
    with pytest.raises(RequestTooLarge, match="a prompt has 129 tokens, and the model takes 128"):
        scheduler.add(make_request("b", [1] * 129, pooling=pooling))


def test_a_prompt_that_no_cache_holds_is_refused():
    with pytest.raises(RequestTooLarge, match="40 prompt tokens need 11 KV blocks of 4 tokens, and the cache has 5"):
        make_scheduler(num_blocks=5).add(make_request("a", [1] * 40, pooling="last"))


def test_only_the_last_token_may_come_from_the_prefix_cache():
    scheduler = make_scheduler()
    device = ReferenceDevice(scheduler)
    prompt = [1, 2, 3, 0] * 5
    for name, pooling, computed in (("a", "last", 20), ("b", "last", 1), ("c", "mean", 20), ("d", "last", 1)):
        before = device.num_computed
        request = make_request(name, prompt, pooling=pooling)
        scheduler.add(request)
        assert finish(scheduler, device) == {name: expected_readout(request)}
        assert device.num_computed - before == computed


def test_readouts_end_by_deadline_and_abort():
    scheduler = make_scheduler(max_num_seqs=1, max_num_batched_tokens=4)
    scheduler.add(make_request("late", [1] * 30, pooling="mean", deadline=2.5))
    scheduler.add(make_request("left", [1] * 30, pooling="last"))
    scheduler.abort("left")
    assert finish(scheduler, ReferenceDevice(scheduler)) == {"late": Status.DEADLINE, "left": Status.ABORTED}


def step(scheduler: Scheduler, device: ReferenceDevice, now: int) -> tuple[float, StepUpdate]:
    """On a device whose steps take 10 ms, and 0.1 ms for every prompt token."""
    plan = scheduler.schedule(float(now))
    result = device.run(plan)
    seconds = 0.010 + 0.0001 * sum(count for count in plan.counts if count > 1)
    return seconds, scheduler.update(msgspec.structs.replace(result, elapsed=seconds))


def beside_streams(policy: str = "fcfs") -> tuple[Scheduler, ReferenceDevice]:
    """Four streams and four hundred texts."""
    scheduler = make_scheduler(
        num_blocks=4000, max_num_seqs=64, max_num_batched_tokens=512, block_size=16, max_model_len=4096, policy=policy
    )
    for place in range(4):
        scheduler.add(make_request(f"s{place}", [place], max_tokens=1000, ignore_eos=True))
    for place in range(400):
        scheduler.add(make_request(f"t{place}", [place % 5] * 20, arrival=1.0, pooling="mean"))
    return scheduler, ReferenceDevice(scheduler)


@pytest.mark.parametrize("policy", ["fcfs", "fair", "priority"])
def test_a_new_answer_does_not_wait_for_all_readouts_before_it(policy):
    scheduler, device = beside_streams(policy)
    for now in range(2, 10):
        step(scheduler, device, now)
    scheduler.add(make_request("answer", [3, 3], arrival=9.0, max_tokens=1))
    step(scheduler, device, 11)
    assert "answer" in {seq.request.id for seq in scheduler.take_finished()}
    assert scheduler.num_waiting > 300


def test_streams_keep_their_pace_beside_readouts():
    scheduler, device = beside_streams()
    steps = [step(scheduler, device, now) for now in range(2, 202)]
    assert max(seconds for seconds, _ in steps[20:]) <= STRETCH * 0.010
    assert sum(len(update.pooled) for _, update in steps) > 200  # more than a text a step


def test_an_encoder_reads_whole_prompts():
    scheduler = make_scheduler(
        block_size=64, num_blocks=16, max_num_seqs=3, max_num_batched_tokens=20, max_model_len=64, caching=False,
        whole_prompts=True,
    )  # fmt: skip
    lengths = (8, 12, 3, 40, 1, 1, 1, 1)
    for place, length in enumerate(lengths):
        scheduler.add(make_request(f"r{place}", [1] * length, arrival=float(place), pooling="mean"))
    device = ReferenceDevice(scheduler)
    steps: list[list[int]] = []
    while scheduler.has_work:
        plan = scheduler.schedule(1.0)
        result = device.run(plan)
        if plan.rows:
            steps.append(plan.counts)
            scheduler.update(result)
    assert steps == [[8, 12], [3], [40], [1, 1, 1], [1]]
