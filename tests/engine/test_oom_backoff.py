"""A device that runs out of memory: steps shrink, requests that fit elsewhere go on, one that fits nowhere ends."""

import pytest

from quire.core.errors import OutOfDeviceMemory
from quire.core.plan import StepPlan
from quire.core.status import Status
from quire.engine.loop import EngineLoop
from quire.engine.oom_backoff import FIRST_PATIENCE, MOST_PATIENCE, OomBackoff
from quire.executor.base import StepHandle
from tests.engine.test_blame import Done, ThrowingExecutor, run
from tests.scheduler.bookkeeping import expected_tokens, make_request, make_scheduler


def test_a_step_that_did_not_fit_is_halved_until_it_cannot_be():
    scheduler = make_scheduler(max_num_batched_tokens=256)
    room = OomBackoff(scheduler)
    assert not room.ran_out(200, num_requests=5)
    assert room.num_tokens == 100
    assert not room.ran_out(100, num_requests=1)
    assert room.num_tokens == 50
    assert room.ran_out(50, num_requests=2)  # smaller did not help, so someone may be to blame
    room.stepped()
    assert not room.ran_out(3, num_requests=2)
    assert not room.ran_out(1 + 1, num_requests=1)
    assert room.ran_out(1, num_requests=1)
    assert room.num_tokens == 1
    room.relieved()
    assert room.num_tokens == 256
    assert not room.ran_out(0, num_requests=0)  # blocks were moved
    assert room.num_tokens == 256


def test_room_comes_back_and_more_slowly_where_it_proves_too_much():
    scheduler = make_scheduler(max_num_batched_tokens=256)
    room = OomBackoff(scheduler)

    def steps_until_it_grows() -> int:
        before, count = room.num_tokens, 0
        while room.num_tokens == before:
            room.stepped()
            count += 1
        return count

    room.ran_out(256, 1)
    first = steps_until_it_grows()
    assert room.num_tokens == 256
    room.ran_out(256, 1)
    assert steps_until_it_grows() == 2 * first
    for _ in range(20):
        room.stepped()
        room.ran_out(256, 1)
    assert steps_until_it_grows() == MOST_PATIENCE
    for _ in range(MOST_PATIENCE):  # and once it has held for long, all is forgotten
        room.stepped()
    room.ran_out(256, 1)
    assert steps_until_it_grows() == 2 * FIRST_PATIENCE


class SmallDevice(ThrowingExecutor):
    """Has memory for so many tokens a step; a poisoned request takes more than there is, however few it has."""

    def __init__(self, *args: object, most_tokens: int, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._most_tokens = most_tokens
        self.sizes: list[int] = []

    def execute(self, plan: StepPlan) -> StepHandle:
        self.sizes.append(plan.num_tokens)
        try:
            handle = super().execute(plan)
        except ValueError as error:
            raise OutOfDeviceMemory(str(error)) from None
        if plan.num_tokens > self._most_tokens:
            error = OutOfDeviceMemory("CUDA out of memory")
            if not self._late:
                raise error
            self._lost = True
            return Done(error)
        return handle


@pytest.mark.parametrize(("max_in_flight", "late"), [(1, False), (2, False), (2, True)])
def test_steps_that_are_too_large_cost_nobody_anything(max_in_flight: int, late: bool):
    scheduler = make_scheduler(max_num_seqs=64, max_num_batched_tokens=512, num_blocks=600)
    executor = SmallDevice(scheduler, {}, max_in_flight=max_in_flight, late=late, most_tokens=40)
    loop = EngineLoop(scheduler, executor)
    requests = [make_request(f"r{i}", [i % 5, 1, 2, 3] * 5, max_tokens=6, ignore_eos=True) for i in range(60)]
    for request in requests:
        loop.add(request)
    ended = run(loop)
    for request in requests:
        status, tokens = ended[request.id, 0]
        assert (status, tokens) == (Status.LENGTH, expected_tokens(request, 0, len(request.prompt.tokens) + 6))
    assert 0 < loop.num_out_of_memory == loop.num_failed_steps <= 8
    assert max(executor.sizes) > 40  # or nothing was tested


@pytest.mark.parametrize("strikes_after", [0, 3])
def test_one_that_fits_nowhere_ends_with_a_reason_and_the_others_go_on(strikes_after: int):
    scheduler = make_scheduler(max_num_seqs=32, max_num_batched_tokens=512, num_blocks=600)
    executor = SmallDevice(scheduler, {"r7": strikes_after}, most_tokens=512)
    loop = EngineLoop(scheduler, executor)
    requests = [make_request(f"r{i}", [i % 5, 1, 2, 3] * 5, max_tokens=6, ignore_eos=True) for i in range(20)]
    sequences = {request.id: loop.add(request)[0] for request in requests}
    ended = run(loop)
    assert [name for (name, _), (status, _) in ended.items() if status is Status.FAILED] == ["r7"]
    assert sequences["r7"].is_blameless
    assert "--max-num-batched-tokens" in sequences["r7"].failure
    for request in requests:
        if request.id != "r7":
            assert ended[request.id, 0][1] == expected_tokens(request, 0, len(request.prompt.tokens) + 6)
