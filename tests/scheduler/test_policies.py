"""Orders, victims and who may push whom out."""

import msgspec
import pytest

from quire.core.adapter import AdapterRef
from quire.core.errors import ConfigError
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.scheduler.policies.base import Policy
from quire.scheduler.policies.choose import POLICIES, make_policy
from quire.scheduler.policies.fair import MAX_ADAPTERS, MAX_TENANTS
from tests.scheduler.bookkeeping import POLICY_OPTIONS, make_request, make_scheduler
from tests.scheduler.test_scheduler import answer, run


def sequence(
    number: int,
    *,
    arrival: float = 0.0,
    tenant: str = "t",
    max_tokens: int = 100,
    priority: int = 0,
    adapter: str | None = None,
) -> Sequence:
    request = make_request(
        f"r{number}", [1] * 4, arrival=arrival, tenant=tenant, max_tokens=max_tokens, priority=priority
    )
    if adapter is not None:
        ref = AdapterRef(adapter, "/", "1")
        request = msgspec.structs.replace(request, prompt=msgspec.structs.replace(request.prompt, adapter=ref))
    return Sequence(number, request, 0, max_total=4 + max_tokens)


def drain(policy: Policy) -> list[int]:
    order = []
    while (seq := policy.peek()) is not None:
        policy.remove(seq)
        order.append(seq.id)
    return order


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_queue_gives_back_each_sequence_once(name):
    policy = make_policy(name, POLICY_OPTIONS[name])
    sequences = [sequence(number, arrival=number % 3) for number in range(9)]
    for seq in sequences:
        policy.push(seq)
    policy.remove(sequences[4])
    policy.push(sequences[4])
    policy.remove(sequences[7])
    assert len(policy) == 8
    assert sorted(drain(policy)) == [0, 1, 2, 3, 4, 5, 6, 8]
    assert len(policy) == 0


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"unknown scheduling policy 'fiar'; known are fcfs, .* Did you mean 'fair'\?"
    ):
        make_policy("fiar", {})


def test_fcfs_serves_in_order_and_sacrifices_the_last():
    policy = make_policy("fcfs", {})
    late, early = sequence(0, arrival=2.0), sequence(1, arrival=1.0)
    for seq in (late, early):
        policy.push(seq)
    assert policy.victim([early, late]) is late
    assert drain(policy) == [1, 0]


def test_sjf_learns_lengths_and_ages():
    policy = make_policy("sjf", {"tokens_per_second": 10.0})
    policy.push(sequence(0, max_tokens=200))
    policy.push(sequence(1, max_tokens=20))
    policy.push(sequence(2, max_tokens=20, arrival=30.0))  # 300 tokens later: behind even the long one
    assert drain(policy) == [1, 0, 2]
    for _ in range(50):
        ended = sequence(9)
        ended.tokens.extend([0] * 10)
        policy.finished(ended)
    long = sequence(3, max_tokens=1000)
    assert policy.rank(long)[0] == pytest.approx(4 + 10, rel=0.2)


def test_round_robin_lets_a_sequence_make_way_after_its_turn():
    policy = make_policy("round-robin", {"slice_tokens": 4})
    running, waiting = sequence(0), sequence(1, arrival=9.0)
    running.tokens.extend([0] * 3)
    assert not policy.outranks(waiting, running)
    running.tokens.append(0)
    assert policy.outranks(waiting, running)
    assert not policy.outranks(running, waiting)


def test_priority_orders_by_level_and_age():
    policy = make_policy("priority", {"ageing": 10.0})
    low, high = sequence(0, priority=5), sequence(1, priority=0, arrival=49.0)
    assert policy.outranks(high, low)
    newer = sequence(2, priority=0, arrival=51.0)
    assert not policy.outranks(newer, low)  # by then `low` has waited five levels away
    for seq in (newer, low, high):
        policy.push(seq)
    assert drain(policy) == [1, 0, 2]


def test_fair_serves_the_tenant_that_is_behind():
    policy = make_policy("fair", {"quantum": 10.0, "weights": {"b": 2.0}})
    a, b = sequence(0, tenant="a"), sequence(1, tenant="b", arrival=1.0)
    policy.push(a)
    policy.push(b)
    policy.charge([a], [8])
    assert policy.peek() is b
    policy.charge([b], [18])  # weighs half
    assert policy.peek() is a
    assert not policy.outranks(a, b)
    policy.charge([b], [20])
    assert policy.outranks(a, b)


def test_fair_takes_other_weights():
    policy = make_policy("fair", {"quantum": 10.0, "weights": {"a": 100.0}})
    a, b = sequence(0, tenant="a"), sequence(1, tenant="b")
    policy.push(a)
    policy.push(b)
    policy.weigh({"b": 2.0})
    policy.charge([a, b], [8, 8])
    assert (policy.rank(a)[0], policy.rank(b)[0]) == (8, 4)


def test_fair_gives_no_credit_for_absence_and_forgets_no_debt():
    policy = make_policy("fair", {"quantum": 10.0})
    a, b = sequence(0, tenant="a"), sequence(1, tenant="b")
    policy.push(a)
    policy.push(b)
    policy.charge([a, b], [100, 500])
    policy.remove(b)
    policy.finished(b)
    newcomer = sequence(2, tenant="c")
    policy.push(newcomer)
    assert policy.rank(newcomer)[0] == 100
    again = sequence(3, tenant="b")
    policy.push(again)
    assert policy.rank(again)[0] == 500


def test_fair_lets_the_adapters_of_a_tenant_take_turns():
    policy = make_policy("fair", {"quantum": 10.0})
    many = [sequence(number, arrival=number, adapter="busy") for number in range(4)]
    one, other = sequence(8, arrival=8, adapter="quiet"), sequence(9, arrival=9, tenant="u")
    for seq in (*many, one, other):
        policy.push(seq)
    for seq in many[:2]:
        policy.remove(seq)
        policy.charge([seq], [50])
    assert drain(policy)[0] == other.id  # whose tenant has had nothing
    for seq in (*many[2:], one):
        policy.push(seq)
    assert drain(policy) == [one.id, 2, 3]


def test_fair_accounts_of_adapters_are_bounded():
    policy = make_policy("fair", {"quantum": 10.0})
    policy.push(sequence(0))
    for number in range(1, 3 * MAX_ADAPTERS):
        seq = sequence(number, adapter=f"a{number}")
        policy.push(seq)
        policy.remove(seq)
    assert len(policy._queues["t"]) <= MAX_ADAPTERS
    assert len(policy) == 1


def test_fair_accounts_are_bounded():
    policy = make_policy("fair", {"quantum": 10.0})
    policy.push(sequence(0, tenant="stays"))
    for number in range(1, MAX_TENANTS + 50):
        seq = sequence(number, tenant=f"t{number}")
        policy.push(seq)
        policy.remove(seq)
        policy.finished(seq)
    assert len(policy._time) <= MAX_TENANTS + 1


def test_a_better_priority_takes_a_row_and_the_other_goes_on_later():
    scheduler = make_scheduler(max_num_seqs=1, policy="priority")
    scheduler.add(make_request("low", [1] * 6, priority=3, max_tokens=8, ignore_eos=True))
    answer(scheduler, scheduler.schedule(0.0))
    [high] = scheduler.add(make_request("high", [2] * 6, arrival=1.0, max_tokens=2, ignore_eos=True))
    scheduler.schedule(1.0)
    assert high.status is Status.RUNNING
    assert scheduler.stats.paused == 1
    assert scheduler.stats.preempted_recompute == 0  # there was room: it kept its blocks


def test_a_better_priority_takes_blocks_too():
    scheduler = make_scheduler(num_blocks=8, block_size=4, max_num_seqs=4, policy="priority")
    scheduler.add(make_request("low", [1] * 20, priority=3, max_tokens=8, ignore_eos=True))
    answer(scheduler, scheduler.schedule(0.0))
    [high] = scheduler.add(make_request("high", [2] * 20, arrival=1.0, max_tokens=4, ignore_eos=True))
    plan = scheduler.schedule(1.0)
    assert high.status is Status.RUNNING
    assert scheduler.stats.preempted_recompute == 1
    answer(scheduler, plan)


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_serves_everyone_under_pressure(name):
    scheduler = make_scheduler(num_blocks=12, block_size=4, max_num_seqs=3, policy=name)
    for number in range(12):
        tenant = "busy" if number % 4 else "quiet"
        scheduler.add(
            make_request(
                f"r{number}",
                [number % 3] * 10,
                arrival=float(number % 5),
                tenant=tenant,
                priority=number % 3,
                max_tokens=1 + number,
            )
        )
    assert len(run(scheduler)) == 12
