"""How long a kernel takes on the GPU: graphs of many calls that rotate through copies of what they read.

In a graph no launch waits for Python, and with enough copies none is still in the cache when its turn comes again: both
as in an engine's step, which reads every weight once.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

BEYOND_THE_CACHE = 200_000_000
"""Bytes to rotate through: four times the L2 of an H200."""


def rotating_copies(tensor: Tensor, at_least: int = BEYOND_THE_CACHE) -> list[Tensor]:
    """The tensor and as many copies as it takes to have `at_least` bytes."""
    more = -(-at_least // max(1, tensor.nbytes)) - 1
    return [tensor, *(tensor.clone() for _ in range(more))]


def time_calls(calls: Sequence[Callable[[], object]], *, least_calls: int = 8, replays: int = 7) -> tuple[float, ...]:
    """Seconds of one of `calls`, which are alike but for the memory they read and run in turn, in each replay."""
    turns = -(-least_calls // len(calls))
    graph = _captured(list(calls) * turns)
    graph.replay()
    return tuple(_replay_time(graph) / (len(calls) * turns) for _ in range(replays))


def _captured(calls: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """A graph of calls. The first runs once before, so that nothing is compiled or set up during the capture."""
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def _replay_time(graph: torch.cuda.CUDAGraph) -> float:
    """Seconds of one replay, on the device's clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
