"""Replica: one engine on a virtual clock. The scheduler and the KV cache are the real ones; only the device is not."""

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from quire.config.facts import DeviceFacts
from quire.config.resolved import Resolved
from quire.core.errors import QuireError, RequestTooLarge
from quire.core.plan import StepPlan
from quire.core.result import StepResult
from quire.engine.assemble import make_scheduler
from quire.simulation.beams import BeamSearch
from quire.simulation.cost import CostModel, ModelWork
from quire.simulation.device import SimulatedDevice
from quire.simulation.goals import LatencyGoals
from quire.simulation.metrics import Metrics
from quire.simulation.recorder import Recorder, StepRecord
from quire.simulation.stages import Stages
from quire.simulation.workload import RequestMaker, SimulatedRequest

MOST_IDLE_STEPS = 8
"""Plans in a row that do nothing although requests wait: more means that the scheduler is stuck."""
REPORT_EVERY = 500
"""Requests between two reports of progress."""


class ReplicaSetup(msgspec.Struct, frozen=True):
    """What a replica is made of; travels to the process that simulates it."""

    resolved: Resolved
    model: ModelWork
    device: DeviceFacts
    num_devices: int = 1
    async_steps: bool = True
    """Plan the next step before the result of the last is read."""
    tenant_weights: dict[str, float] = {}
    goals: LatencyGoals | None = None
    """What requests are counted as good by."""


class Replica:
    """Runs one list of requests to the end."""

    def __init__(self, setup: ReplicaSetup) -> None:
        self.scheduler = make_scheduler(setup.resolved, setup.tenant_weights)
        self._lengths: dict[str, int] = {}
        kv, cost = setup.resolved.kv, CostModel(setup.model, setup.device, setup.resolved, setup.num_devices)
        self._cost = cost
        self._device = SimulatedDevice(cost, self._lengths, kv.block_size, kv.num_blocks)
        self._stages = Stages(setup.resolved.num_stages)
        self._recorder = Recorder(self.scheduler, setup.goals)
        self._maker = RequestMaker()
        self._beams: dict[str, BeamSearch] = {}
        self._depth = setup.resolved.num_stages if setup.async_steps else 0
        """Steps that are under way while another is planned."""
        self._in_flight: deque[tuple[StepResult, StepRecord]] = deque()
        self._clock = 0.0
        self._idle_steps = 0

    def run(self, requests: Iterable[SimulatedRequest], progress: Callable[[int], None] | None = None) -> Metrics:
        """Simulate until every request has ended; `progress` is told now and then how many more have arrived."""
        arrivals = iter(requests)
        upcoming = next(arrivals, None)
        arrived = 0
        while upcoming is not None or self.scheduler.has_work:
            while upcoming is not None and upcoming.arrival <= self._clock:
                self._deliver(upcoming)
                upcoming = next(arrivals, None)
                arrived += 1
                if progress is not None and arrived % REPORT_EVERY == 0:
                    progress(REPORT_EVERY)
            if self.scheduler.has_work and self._step():
                self._idle_steps = 0
            else:
                self._wait_for(upcoming)
        if progress is not None:
            progress(arrived % REPORT_EVERY)
        return self._recorder.finish()

    def _deliver(self, simulated: SimulatedRequest) -> None:
        # not worth making the tokens of a prompt that is known to be refused
        if simulated.input_tokens >= self.scheduler.limits.max_model_len:
            self._recorder.refused(simulated)
            return
        try:
            sequences = self.scheduler.add(self._maker.make(simulated))
        except RequestTooLarge:
            self._recorder.refused(simulated)
            return
        self._lengths[simulated.id] = simulated.output_tokens
        self._recorder.arrived(simulated, sequences)
        if simulated.beam_width > 1:
            self._beams[simulated.id] = BeamSearch(simulated, sequences[0])

    def _step(self) -> bool:
        """Plan a step and start it, and read the one that is due. False when there was nothing to do."""
        plan = self.scheduler.schedule(self._clock)
        if not plan.is_empty:
            self._execute(plan)
        # forks need every token read, so beams cannot be planned ahead of their results
        depth = self._depth if plan.rows and not self._beams else 0
        read = len(self._in_flight) > depth
        while len(self._in_flight) > depth:
            self._read(*self._in_flight.popleft())
            if not plan.rows and self._depth > 1:
                break  # another turn may have become ready by it
        self._end_finished()
        return read or not plan.is_empty

    def _execute(self, plan: StepPlan) -> None:
        self._recorder.planned(plan, self._clock)
        result = self._device.execute(plan)
        hop = self._cost.hop_seconds(plan.num_tokens)
        start, end = self._stages.run(self._clock, plan, result.elapsed, hop)
        if plan.rows:
            self._in_flight.append((result, self._recorder.executed(plan, start, end)))

    def _read(self, result: StepResult, record: StepRecord) -> None:
        self._clock = record.end
        update = self.scheduler.update(result)
        self._recorder.read(record, len(update.tokens))
        for beams in self._beams.values():
            for parent, child in beams.advance(self.scheduler):
                self._recorder.forked(parent, child, self._clock)

    def _end_finished(self) -> None:
        finished = self.scheduler.take_finished()
        if finished:
            for request_id in self._recorder.ended(finished, self._clock):
                del self._lengths[request_id]
                self._beams.pop(request_id, None)

    def _wait_for(self, upcoming: SimulatedRequest | None) -> None:
        """There is nothing to do now: skip to the next arrival."""
        if self.scheduler.has_work:
            self._idle_steps += 1
            if self._idle_steps > MOST_IDLE_STEPS:
                raise QuireError(
                    f"the scheduler is stuck at {self._clock:.3f} s with {self.scheduler.num_waiting} sequences "
                    f"waiting and {len(self.scheduler.running)} running; this is a bug in quire."
                )
        elif upcoming is not None:
            self._clock = max(self._clock, upcoming.arrival)
