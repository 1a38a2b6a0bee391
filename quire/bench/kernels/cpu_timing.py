"""How long a call takes on a CPU: repeats of calls that rotate through copies of what they read."""

import time
from collections.abc import Callable, Sequence
from statistics import median

_FEWEST = 5
_MOST = 200


def time_calls(calls: Sequence[Callable[[], object]], seconds: float) -> tuple[float, ...]:
    """Seconds of each call, for about so long; the calls are alike but for the memory they read."""
    for call in calls:
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    turn = 0
    while len(times) < _FEWEST or (len(times) < _MOST and time.perf_counter() < end):
        call = calls[turn % len(calls)]
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
        turn += 1
    return tuple(times)


def median_time(calls: Sequence[Callable[[], object]], seconds: float) -> float:
    return median(time_calls(calls, seconds))
