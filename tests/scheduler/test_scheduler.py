"""The rules of a step, one by one, on schedulers of a few blocks with an exact device."""

import msgspec
import pytest

from quire.config.resolved import KVGroup
from quire.core.errors import RequestTooLarge
from quire.core.request import Emitted, Request
from quire.core.result import StepResult
from quire.core.status import FINISH_REASONS, Status
from quire.kvcache.invariants import check
from quire.scheduler.scheduler import Scheduler
from tests.scheduler.bookkeeping import EOS, ReferenceDevice, expected_tokens, make_request, make_scheduler


def run(scheduler: Scheduler, steps: int = 500, now: float = 0.0) -> list:
    """Step until nothing is left; every token is checked against an undisturbed run."""
    device = ReferenceDevice(scheduler)
    finished = []
    for step in range(steps):
        if not scheduler.has_work:
            break
        plan = scheduler.schedule(now + step)
        result = device.run(plan)
        if plan.rows:
            scheduler.update(result)
        check(scheduler.kv)
        finished += scheduler.take_finished()
    assert not scheduler.has_work
    for seq in finished:
        if seq.status in {Status.STOPPED, Status.LENGTH}:
            assert seq.tokens[seq.num_prompt :] == expected_tokens(seq.request, seq.index, seq.max_total)
    return finished


def answer(scheduler: Scheduler, plan, token: int = 0) -> None:
    scheduler.update(StepResult(step=plan.step, tokens=[token] * plan.num_sampling))


def test_a_long_prompt_is_computed_in_chunks_beside_decodes():
    scheduler = make_scheduler(max_num_batched_tokens=10)
    scheduler.add(make_request("short", [1, 2]))
    answer(scheduler, scheduler.schedule(0.0))
    scheduler.add(make_request("long", list(range(25)), arrival=1.0))
    shapes = []
    for _ in range(4):
        plan = scheduler.schedule(1.0)
        shapes.append((plan.counts, plan.num_sampling))
        answer(scheduler, plan)
    assert shapes == [([1, 9], 1), ([1, 9], 1), ([1, 7], 2), ([1, 1], 2)]


def test_the_long_prefill_threshold_leaves_room_for_others():
    scheduler = make_scheduler(max_num_batched_tokens=16, long_prefill_token_threshold=5)
    scheduler.add(make_request("long", list(range(20))))
    scheduler.add(make_request("other", [7] * 8, arrival=1.0))
    assert scheduler.schedule(0.0).counts == [5, 5]


def test_decodes_come_longest_first():
    scheduler = make_scheduler()
    for number, length in enumerate((3, 9, 1, 9, 5)):
        scheduler.add(make_request(str(number), [number] * length, arrival=float(number)))
    answer(scheduler, scheduler.schedule(0.0))
    plan = scheduler.schedule(1.0)
    lengths = {seq.row: seq.num_prompt for seq in scheduler.running}
    assert [lengths[row] for row in plan.rows] == [9, 9, 5, 3, 1]


def test_a_plan_of_decodes_carries_only_rows_and_new_blocks():
    scheduler = make_scheduler(block_size=4)
    scheduler.add(make_request("a", [1, 2, 3]))
    answer(scheduler, scheduler.schedule(0.0))
    plan = scheduler.schedule(0.0)
    assert (plan.admitted, plan.table_deltas, plan.rows) == ([], [], [0])
    answer(scheduler, plan)
    plan = scheduler.schedule(0.0)
    [delta] = plan.table_deltas
    assert (delta.row, delta.start) == (0, 1)


def test_a_request_that_can_never_fit_is_refused_with_the_numbers():
    scheduler = make_scheduler(num_blocks=10, block_size=4, max_model_len=100)
    with pytest.raises(RequestTooLarge, match="the prompt has 100 tokens and the context holds 100") as caught:
        scheduler.add(make_request("a", [1] * 100))
    assert caught.value.field == "prompt"
    with pytest.raises(
        RequestTooLarge, match=r"30 prompt tokens and up to 8 output tokens need 11 KV blocks of 4 tokens"
    ):
        scheduler.add(make_request("a", [1] * 30))
    assert not scheduler.has_work


@pytest.mark.parametrize("chunk", [9, 3])
def test_a_long_prompt_behind_a_window_is_admitted_though_its_blocks_never_fit_at_once(chunk):
    scheduler = make_scheduler(
        groups=(KVGroup((0,), window=5),), num_blocks=17, block_size=1, max_num_seqs=2, max_num_batched_tokens=chunk
    )
    device = ReferenceDevice(scheduler)
    prompt = [token % 3 for token in range(40)]
    for name in ("first", "again", "longer"):  # the later ones find the window of the earlier one in the cache
        scheduler.add(make_request(name, prompt if name != "longer" else [*prompt[:30], *prompt], max_tokens=4))
        assert len(run_from(scheduler, device, steps=300)) == 1


def test_without_max_tokens_the_cache_is_the_limit():
    scheduler = make_scheduler(num_blocks=10, block_size=4, max_model_len=100)
    [seq] = scheduler.add(make_request("a", [1] * 30, max_tokens=None))
    assert seq.max_total == 36
    [seq] = scheduler.add(make_request("b", [1], max_tokens=None))
    run(scheduler)


def test_stop_tokens_end_a_sequence_but_not_before_min_tokens():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", [1], min_tokens=3))
    for _ in range(3):
        answer(scheduler, scheduler.schedule(0.0), EOS)
    [seq] = scheduler.take_finished()
    assert (seq.status, seq.num_output) == (Status.STOPPED, 3)
    assert FINISH_REASONS[seq.status] == "stop"


def test_a_preempted_sequence_keeps_its_place_and_its_cached_prefix():
    scheduler = make_scheduler(num_blocks=9, block_size=4, max_num_batched_tokens=32, preemption="recompute")
    old = scheduler.add(make_request("old", [1] * 12, arrival=0.0, max_tokens=12, ignore_eos=True))[0]
    young = scheduler.add(make_request("young", [2] * 12, arrival=1.0, max_tokens=12, ignore_eos=True))[0]
    late = None
    for step in range(200):
        plan = scheduler.schedule(float(step))
        if scheduler.stats.preempted_recompute and late is None:
            assert young.status is Status.PREEMPTED
            late = scheduler.add(make_request("late", [3] * 4, arrival=9.0, max_tokens=1, ignore_eos=True))[0]
        if plan.rows:
            answer(scheduler, plan)
        if not scheduler.has_work:
            break
    assert old.num_preemptions == 0
    assert young.num_preemptions == 1
    assert late is not None
    assert young.first_granted < late.first_granted


def test_preemption_by_swap_moves_blocks_and_computes_nothing_twice():
    scheduler = make_scheduler(num_blocks=9, num_cpu_blocks=16, block_size=4, preemption="swap", caching=False)
    for name in ("a", "b"):
        scheduler.add(make_request(name, [1] * 12, max_tokens=12, ignore_eos=True))
    device = ReferenceDevice(scheduler)
    while scheduler.has_work:
        plan = scheduler.schedule(0.0)
        result = device.run(plan)
        if plan.rows:
            scheduler.update(result)
        check(scheduler.kv)
    assert scheduler.stats.preempted_swap > 0
    assert device.num_computed == 2 * (12 + 11)


def test_auto_takes_the_cheaper_way_out():
    # two seconds a block against one a token: with blocks of four tokens, swapping a full one is cheaper
    scheduler = make_scheduler(num_blocks=9, num_cpu_blocks=16, block_size=4, preemption="auto", caching=False)
    for name in ("a", "b"):
        scheduler.add(make_request(name, [1] * 12, max_tokens=12, ignore_eos=True))
    run(scheduler)
    assert scheduler.stats.preempted_swap > 0
    assert scheduler.stats.preempted_recompute == 0


def test_deadlines_end_requests_in_the_queue_and_while_they_run():
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_request("runs", [1], max_tokens=50, deadline=10.0, ignore_eos=True))
    scheduler.add(make_request("waits", [1], deadline=5.0))
    for now in range(12):
        plan = scheduler.schedule(float(now))
        if plan.rows:
            answer(scheduler, plan)
    finished = {seq.request.id: seq for seq in scheduler.take_finished()}
    assert {seq.status for seq in finished.values()} == {Status.DEADLINE}
    assert finished["waits"].num_output == 0
    assert finished["runs"].num_output == 10
    assert not scheduler.has_work


def test_a_queue_time_out_spares_those_that_run():
    scheduler = make_scheduler(max_num_seqs=1, queue_timeout=3.0)
    scheduler.add(make_request("runs", [1], max_tokens=8, ignore_eos=True))
    scheduler.add(make_request("waits", [1]))
    finished = {seq.request.id: seq.status for seq in run(scheduler)}
    assert finished == {"runs": Status.LENGTH, "waits": Status.QUEUE_TIMEOUT}


def test_a_queue_time_out_spares_what_comes_from_a_lost_engine():
    scheduler = make_scheduler(max_num_seqs=1, queue_timeout=3.0)
    scheduler.add(make_request("runs", [1], max_tokens=8, ignore_eos=True))
    moved = make_request("moved", [1], max_tokens=4, ignore_eos=True)
    scheduler.add(msgspec.structs.replace(moved, resume=(Emitted(0, tuple(expected_tokens(moved, 0, 2))),)))
    finished = {seq.request.id: seq.status for seq in run(scheduler)}
    assert finished == {"runs": Status.LENGTH, "moved": Status.LENGTH}


def test_a_held_request_keeps_its_place_and_its_blocks_until_it_is_let_go():
    scheduler = make_scheduler()
    device = ReferenceDevice(scheduler)
    held = make_request("held", [1, 2, 3], max_tokens=6, ignore_eos=True)
    scheduler.add(held)
    scheduler.update(device.run(scheduler.schedule(1.0)))
    used = scheduler.kv.device.pool.num_used
    scheduler.hold("held")
    device.run(scheduler.schedule(2.0))  # tells the worker that the row is free
    assert not scheduler.can_advance
    assert scheduler.has_work
    assert (scheduler.num_held, scheduler.num_waiting, scheduler.kv.device.pool.num_used) == (1, 0, used)
    scheduler.resume("held")
    while scheduler.has_work:
        plan = scheduler.schedule(3.0)
        result = device.run(plan)
        if plan.rows:
            scheduler.update(result)
    [seq] = scheduler.take_finished()
    assert seq.tokens[3:] == expected_tokens(held, 0, 3 + 6)


def test_parallel_samples_share_the_prompt():
    scheduler = make_scheduler(num_blocks=64, block_size=4, caching=False)
    scheduler.add(make_request("a", [1] * 18, n=4, max_tokens=6, ignore_eos=True))
    device = ReferenceDevice(scheduler)
    plan = scheduler.schedule(0.0)
    scheduler.update(device.run(plan))
    plan = scheduler.schedule(0.0)
    assert plan.counts == [1, 1, 1, 1]
    # five blocks of the prompt, three copies of its last, begun one
    assert len(plan.copies) == 3
    assert scheduler.kv.usage().used_blocks == 5 + 3
    assert scheduler.kv.usage().unshared_blocks == 4 * 5
    scheduler.update(device.run(plan))
    finished = run_from(scheduler, device)
    assert sorted(seq.index for seq in finished) == [0, 1, 2, 3]


def run_from(scheduler: Scheduler, device: ReferenceDevice, steps: int = 500) -> list:
    finished = scheduler.take_finished()
    for _ in range(steps):
        if not scheduler.has_work:
            break
        plan = scheduler.schedule(0.0)
        result = device.run(plan)
        if plan.rows:
            scheduler.update(result)
        check(scheduler.kv)
        finished += scheduler.take_finished()
    assert not scheduler.has_work
    for seq in finished:
        assert seq.tokens[seq.num_prompt :] == expected_tokens(seq.request, seq.index, seq.max_total)
    return finished


def test_siblings_survive_a_first_sequence_that_ends_at_once():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", [1] * 9, n=3, max_tokens=1))
    assert len(run(scheduler)) == 3
    scheduler.add(make_request("b", [1] * 9, n=3))
    scheduler.abort("b")
    assert [seq.status for seq in scheduler.take_finished()] == [Status.ABORTED] * 3
    assert not scheduler.has_work


def test_a_shared_prefix_in_one_burst_is_computed_once():
    scheduler = make_scheduler(num_blocks=200, max_num_seqs=16, max_num_batched_tokens=256)
    head = [5, 6, 7, 8] * 10
    device = ReferenceDevice(scheduler)
    for user in range(10):
        scheduler.add(make_request(f"u{user}", [*head, user, user + 1], max_tokens=1))
    while scheduler.has_work:
        plan = scheduler.schedule(0.0)
        result = device.run(plan)
        if plan.rows:
            scheduler.update(result)
    assert device.num_computed == len(head) + 10 * 2
    assert scheduler.num_deferred == 9


def test_placeholders_let_the_next_step_be_planned_before_the_last_is_read():
    scheduler = make_scheduler()
    device = ReferenceDevice(scheduler)
    [seq] = scheduler.add(make_request("a", [1, 2, 3], max_tokens=6, ignore_eos=True))
    results = [device.run(scheduler.schedule(0.0))]
    for _ in range(5):
        plan = scheduler.schedule(0.0)
        assert plan.rows == [0]
        results.append(device.run(plan))
        scheduler.update(results.pop(0))
    # its last token is in flight: there is nothing left to plan
    assert scheduler.schedule(0.0).rows == []
    scheduler.update(results.pop(0))
    assert seq.tokens[3:] == expected_tokens(seq.request, 0, 9)
    assert seq.status is Status.LENGTH


def test_a_sequence_that_ends_costs_at_most_one_wasted_row():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=50))
    first = scheduler.schedule(0.0)
    wasted = scheduler.schedule(0.0)
    answer(scheduler, first, EOS)
    assert [seq.status for seq in scheduler.take_finished()] == [Status.STOPPED]
    assert scheduler.update(StepResult(step=wasted.step, tokens=[3])).sequences == []
    assert scheduler.schedule(0.0).released == [0]
    assert not scheduler.has_work


def test_drafts_are_verified_and_taken_back():
    scheduler = make_scheduler(num_drafts=3)
    [seq] = scheduler.add(make_request("a", [1, 2, 3], max_tokens=20, ignore_eos=True))
    plan = scheduler.schedule(0.0)
    assert (plan.counts, plan.num_drafts) == ([3], [])
    scheduler.update(StepResult(step=plan.step, tokens=[1]))
    first = scheduler.schedule(0.0)
    assert (first.counts, first.num_drafts, first.drafts_of_each) == ([4], [3], 3)
    second = scheduler.schedule(0.0)  # nobody knows yet how many were right
    assert (second.counts, second.num_drafts) == ([4], [3])
    assert (seq.num_tokens, seq.fewest_tokens, seq.num_computed) == (12, 6, 11)
    scheduler.update(StepResult(step=first.step, tokens=[2, 3, 4], counts=[3], num_drafted=3))
    assert seq.tokens == [1, 2, 3, 1, 2, 3, 4]
    assert (seq.num_tokens, seq.num_computed) == (11, 10)
    scheduler.update(StepResult(step=second.step, tokens=[5], counts=[1], num_drafted=2))
    assert (seq.num_tokens, seq.num_computed, seq.num_pending, seq.num_unverified) == (8, 7, 0, 0)
    assert (scheduler.drafts.drafts, scheduler.drafts.tokens, scheduler.drafts.accepted) == (2, 5, 2)
    check(scheduler.kv)


def test_no_more_drafts_are_granted_than_are_ready():
    scheduler = make_scheduler(num_drafts=3)
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=20, ignore_eos=True))
    scheduler.add(make_request("b", [1, 2, 3, 4], max_tokens=3, ignore_eos=True))
    scheduler.add(make_request("c", [3, 2, 3, 4, 5], max_tokens=20, ignore_eos=True))
    plan = scheduler.schedule(0.0)
    scheduler.update(StepResult(step=plan.step, tokens=[1, 1, 1], num_proposed=[2, 3, 0]))
    plan = scheduler.schedule(0.0)
    # the longest comes first; one that may have two tokens more has use for one draft
    assert (plan.rows, plan.counts, plan.num_drafts, plan.drafts_of_each) == ([2, 1, 0], [1, 2, 3], [0, 1, 2], None)


def test_drafts_take_what_the_budget_leaves():
    scheduler = make_scheduler(num_drafts=3, max_num_batched_tokens=6, max_num_seqs=2)
    for name in "ab":
        scheduler.add(make_request(name, [1, 2], max_tokens=20, ignore_eos=True))
    answer(scheduler, scheduler.schedule(0.0), 1)
    plan = scheduler.schedule(0.0)
    assert (plan.counts, plan.num_drafts) == ([3, 3], [2, 2])


def test_where_someone_else_decides_there_are_no_drafts():
    scheduler = make_scheduler(num_drafts=3)
    scheduler.drafts_are_off = True
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=20, ignore_eos=True))
    answer(scheduler, scheduler.schedule(0.0), 1)
    assert scheduler.schedule(0.0).counts == [1]


def test_a_lost_step_leaves_nothing_behind():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", [1] * 10, ignore_eos=True))
    device = ReferenceDevice(scheduler)
    scheduler.update(device.run(scheduler.schedule(0.0)))
    scheduler.add(make_request("b", [1] * 10, ignore_eos=True))
    plan = scheduler.schedule(0.0)
    assert {seq.request.id for seq in scheduler.rollback(plan.step)} == {"a", "b"}
    check(scheduler.kv)
    device.reset()
    assert len(run_from(scheduler, device)) == 2


def test_a_resumed_request_goes_on_behind_what_it_had_emitted():
    scheduler = make_scheduler()
    request = make_request("a", [1, 2, 3], n=2, max_tokens=9, ignore_eos=True)
    emitted = tuple(expected_tokens(request, 1, 12)[:4])
    resumed = Request(id="a", prompt=request.prompt, params=request.params, resume=(Emitted(1, emitted),))
    [seq] = scheduler.add(resumed)
    run(scheduler)
    assert (seq.index, seq.num_output) == (1, 9)


def test_a_beam_shares_everything_but_its_last_token():
    scheduler = make_scheduler(block_size=4)
    [seq] = scheduler.add(make_request("a", [1] * 10, max_tokens=5, ignore_eos=True))
    answer(scheduler, scheduler.schedule(0.0), token=2)
    child = scheduler.fork(seq, last_token=3)
    assert (seq.tokens[-1], child.tokens[-1], child.num_computed) == (2, 3, 10)
    plan = scheduler.schedule(0.0)
    assert plan.counts == [1, 1]
    assert len(plan.copies) == 1
    assert scheduler.kv.usage().used_blocks == 4
    scheduler.end(seq, Status.ABORTED)
    check(scheduler.kv)


def test_aborting_what_is_not_there_does_nothing():
    scheduler = make_scheduler()
    scheduler.abort("nobody")
    assert scheduler.take_finished() == []


def test_waiting_and_running_are_counted():
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_request("a", [1], n=3))
    scheduler.add(make_request("b", [1]))
    assert (len(scheduler.running), scheduler.num_waiting) == (0, 4)
    answer(scheduler, scheduler.schedule(0.0))
    assert (len(scheduler.running), scheduler.num_waiting) == (1, 3)


def finds_by_step(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often each step, until nothing is left, looks for a prompt in the prefix cache."""
    found: list[int] = []
    find = scheduler.kv.find

    def counted(seq):
        found[-1] += 1
        return find(seq)

    monkeypatch.setattr(scheduler.kv, "find", counted)
    device = ReferenceDevice(scheduler)
    while scheduler.has_work:
        found.append(0)
        plan = scheduler.schedule(float(len(found)))
        result = device.run(plan)
        if plan.rows:
            scheduler.update(result)
        check(scheduler.kv)
    return found


def test_whoever_waits_for_a_prefix_is_not_looked_at_until_it_is_there(monkeypatch):
    scheduler = make_scheduler(max_num_batched_tokens=10, long_prefill_token_threshold=4, num_blocks=200)
    head = list(range(60, 100))
    scheduler.add(make_request("leads", [*head, 1], max_tokens=1))
    for number in range(3):
        scheduler.add(make_request(f"follows {number}", [*head, 10 + number], arrival=1.0, max_tokens=1))
    found = finds_by_step(scheduler, monkeypatch)
    assert found[:2] == [4, 0]
    assert sum(found) == 4 + 3
    assert scheduler.kv.stats.tokens_saved >= 3 * 40


def test_followers_of_a_part_and_of_one_that_is_gone_go_on(monkeypatch):
    scheduler = make_scheduler(max_num_batched_tokens=10, long_prefill_token_threshold=4, num_blocks=200)
    head = list(range(60, 100))
    scheduler.add(make_request("leads", [*head, 1]))
    [part] = scheduler.add(make_request("part", [*head[:12], 7, 7, 7], arrival=1.0, max_tokens=1))
    [rest] = scheduler.add(make_request("rest", [*head, 9], arrival=2.0, max_tokens=1))
    device = ReferenceDevice(scheduler)
    for step in range(4):
        scheduler.update(device.run(scheduler.schedule(float(step))))
    assert part.status is not Status.WAITING  # twelve tokens of the head are there, though the leader has more to do
    assert rest.status is Status.WAITING
    scheduler.abort("leads")
    scheduler.update(device.run(scheduler.schedule(5.0)))
    assert rest.status is Status.RUNNING


def test_a_step_looks_for_a_bounded_part_of_the_queue(monkeypatch):
    scheduler = make_scheduler(max_num_batched_tokens=4, max_num_seqs=64, num_blocks=2000)
    for number in range(40):
        scheduler.add(make_request(str(number), [number, *range(40)], max_tokens=1, prompt_logprobs=None))
    assert max(finds_by_step(scheduler, monkeypatch)) <= 2
