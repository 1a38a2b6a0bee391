"""Random histories of arrivals, steps, forks, aborts, preemptions and failures against an exact model of memory.

After every operation the bookkeeping proves itself; in the end every block is free, every sequence has ended
exactly once, and every token is what the sequence would have produced alone.
"""

from collections import Counter, deque

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quire.config.resolved import KVGroup
from quire.core.errors import RequestTooLarge
from quire.core.pooling import Rows
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.kvcache.invariants import check
from tests.scheduler.bookkeeping import (
    ReferenceDevice,
    expected_readout,
    expected_tokens,
    make_request,
    make_scheduler,
)

LAYOUTS = {
    "full": (KVGroup((0,)),),
    "full and window": (KVGroup((0,)), KVGroup((1,), window=6)),
    "window": (KVGroup((0,), window=5),),
    "two windows": (KVGroup((0,)), KVGroup((1,), window=9), KVGroup((2,), window=3)),
}
MAX_IN_FLIGHT = 2


class Bookkeeping(RuleBasedStateMachine):
    @initialize(
        layout=st.sampled_from(sorted(LAYOUTS)),
        block_size=st.sampled_from([1, 2, 4]),
        num_blocks=st.integers(12, 60),
        num_cpu_blocks=st.sampled_from([0, 0, 10, 40]),
        max_num_seqs=st.integers(1, 6),
        budget=st.integers(6, 24),
        caching=st.booleans(),
        policy=st.sampled_from(["fcfs", "sjf", "round-robin", "priority", "fair"]),
        preemption=st.sampled_from(["auto", "recompute", "swap"]),
        threshold=st.sampled_from([0, 0, 3]),
        drafts=st.sampled_from([0, 0, 1, 3]),
        tells=st.booleans(),
        queue_timeout=st.sampled_from([None, None, 6.0]),
    )
    def start(
        self,
        layout,
        block_size,
        num_blocks,
        num_cpu_blocks,
        max_num_seqs,
        budget,
        caching,
        policy,
        preemption,
        threshold,
        drafts,
        tells,
        queue_timeout,
    ):
        self.scheduler = make_scheduler(
            groups=LAYOUTS[layout],
            block_size=block_size,
            num_blocks=num_blocks,
            num_cpu_blocks=num_cpu_blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            max_model_len=40,
            caching=caching,
            policy=policy,
            preemption=preemption,
            long_prefill_token_threshold=threshold,
            num_drafts=drafts,
            queue_timeout=queue_timeout,
        )
        self.device = ReferenceDevice(self.scheduler, tells=tells)
        self.most_in_flight = 1 if tells else MAX_IN_FLIGHT
        self.results: deque[StepResult] = deque()
        self.now = 0.0
        self.requests: dict[str, Request] = {}
        self.live: dict[int, Sequence] = {}
        self.ended: Counter[int] = Counter()
        self.forked: set[str] = set()
        self.held: set[str] = set()
        self.pooled: dict[int, Rows] = {}

    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=24),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        max_tokens=st.integers(1, 14),
        tenant=st.sampled_from(["ann", "bob"]),
        salt=st.sampled_from([None, None, "pepper"]),
        priority=st.integers(0, 2),
        deadline=st.sampled_from([None, None, None, 8.0]),
        use_prefix_cache=st.sampled_from([True, True, True, False]),
        pooling=st.sampled_from([None, None, "last", "mean"]),
    )
    def arrive(self, prompt, n, max_tokens, tenant, salt, priority, deadline, use_prefix_cache, pooling):
        request = make_request(
            f"r{len(self.requests)}",
            prompt,
            arrival=self.now,
            tenant=tenant,
            pooling=pooling,
            n=n if pooling is None else 1,
            max_tokens=max_tokens,
            cache_salt=salt,
            priority=priority,
            deadline=deadline,
            use_prefix_cache=use_prefix_cache,
        )
        try:
            sequences = self.scheduler.add(request)
        except RequestTooLarge:
            return
        self.requests[request.id] = request
        self.live.update({seq.id: seq for seq in sequences})

    @rule()
    @precondition(lambda self: len(self.results) < self.most_in_flight)
    def plan_and_run(self):
        self.now += 1.0
        plan = self.scheduler.schedule(self.now)
        result = self.device.run(plan)
        if plan.rows:
            self.results.append(result)
        self.collect()

    @rule()
    @precondition(lambda self: self.results)
    def read_result(self):
        update = self.scheduler.update(self.results.popleft())
        self.pooled |= update.pooled
        self.collect()

    @rule()
    @precondition(lambda self: len(self.results) < self.most_in_flight)
    def plan_and_fail(self):
        self.now += 1.0
        plan = self.scheduler.schedule(self.now)
        if plan.rows:
            self.scheduler.rollback(plan.step)
            self.device.reset()
        else:
            self.device.run(plan)
        self.collect()

    @rule(data=st.data())
    @precondition(lambda self: self.live)
    def abort(self, data):
        seq = self.live[data.draw(st.sampled_from(sorted(self.live)))]
        self.scheduler.abort(seq.request.id)
        self.collect()

    @rule(data=st.data())
    @precondition(lambda self: self.live)
    def end_one(self, data):
        seq = self.live[data.draw(st.sampled_from(sorted(self.live)))]
        self.scheduler.end(seq, Status.STOPPED)
        self.forked.add(seq.request.id)  # its text is cut short on purpose
        self.collect()

    @rule(data=st.data(), preempt=st.booleans())
    @precondition(lambda self: self.scheduler.running)
    def displace(self, data, preempt):
        seq = data.draw(st.sampled_from(self.scheduler.running))
        roster = self.scheduler._roster
        # as if the next step began with it
        self.scheduler.kv.begin_step(self.scheduler._step + 1)
        (roster.preempt if preempt else roster.pause)(seq)

    @rule(data=st.data())
    @precondition(lambda self: self.live)
    def hold(self, data):
        seq = self.live[data.draw(st.sampled_from(sorted(self.live)))]
        # as if the next step began with it
        self.scheduler.kv.begin_step(self.scheduler._step + 1)
        self.scheduler.hold(seq.request.id)
        assert not any(other.request.id == seq.request.id for other in self.scheduler.running)
        self.held.add(seq.request.id)

    @rule(data=st.data())
    @precondition(lambda self: self.held)
    def resume(self, data):
        request_id = data.draw(st.sampled_from(sorted(self.held)))
        self.held.remove(request_id)
        self.scheduler.resume(request_id)

    @rule(data=st.data())
    @precondition(lambda self: not self.results and self.scheduler.running)
    def fork_beam(self, data):
        parent = data.draw(st.sampled_from(self.scheduler.running))
        assume(parent.num_output > 0 and not parent.num_pending)
        child = self.scheduler.fork(parent, last_token=data.draw(st.integers(0, 3)))
        self.live[child.id] = child
        self.forked.add(parent.request.id)

    def collect(self):
        for seq in self.scheduler.take_finished():
            self.ended[seq.id] += 1
            del self.live[seq.id]
            if seq.status in {Status.STOPPED, Status.LENGTH} and seq.request.id not in self.forked:
                assert seq.tokens[seq.num_prompt :] == expected_tokens(seq.request, seq.index, seq.max_total)
                if seq.request.pooling is not None:
                    assert self.pooled[seq.id] == expected_readout(seq.request)

    @invariant()
    def books_balance(self):
        if hasattr(self, "scheduler"):
            assert not self.held & {seq.request.id for seq in self.scheduler.running}, "a held request runs"
            check(self.scheduler.kv)

    def teardown(self):
        if not hasattr(self, "scheduler"):
            return
        for request_id in self.held:
            self.scheduler.resume(request_id)
        for _ in range(2000):
            if not self.scheduler.has_work:
                break
            while self.results:
                self.read_result()
            if self.scheduler.has_work:
                self.plan_and_run()
        assert not self.scheduler.has_work, "requests are stuck"
        assert not self.live
        assert all(count == 1 for count in self.ended.values()), "a sequence ended twice"
        check(self.scheduler.kv)
        assert self.scheduler.kv.device.pool.num_used == 0, "blocks leaked"
        assert self.scheduler.kv.host.pool.num_used == 0, "CPU blocks leaked"


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = settings(stateful_step_count=40)
