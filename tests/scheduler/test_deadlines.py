"""Deadlines keep nothing of what has ended."""

from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.scheduler.deadlines import Deadlines


def sequence(number: int, deadline: float) -> Sequence:
    params = SamplingParams(deadline=deadline)
    return Sequence(number, Request(id=str(number), prompt=Prompt((1, 2)), params=params), 0, 10)


def test_ended_sequences_are_let_go_long_before_their_moment() -> None:
    deadlines = Deadlines(queue_timeout=1e9)
    live = [sequence(number, 1e9) for number in range(10)]
    for seq in live:
        deadlines.watch(seq)
    for number in range(10, 5000):
        ended = sequence(number, 1e9)
        deadlines.watch(ended)
        ended.status = Status.ABORTED
        assert len(deadlines) < 200
    due = [seq.id for seq, status in deadlines.due(2e9) if status is Status.DEADLINE]
    assert due == [seq.id for seq in live]


def test_the_order_stays_after_a_sweep() -> None:
    deadlines = Deadlines(queue_timeout=None)
    sequences = [sequence(number, float(1000 - number)) for number in range(300)]
    for seq in sequences:
        deadlines.watch(seq)
        if seq.id % 3:
            seq.status = Status.ABORTED
    assert [seq.id for seq, _ in deadlines.due(1e4)] == [number for number in range(299, -1, -1) if number % 3 == 0]
