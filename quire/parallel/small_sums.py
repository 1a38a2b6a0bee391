"""SmallSums: all-reduces of little, as decode steps have them, in one exchange over the memory of a host's GPUs.

NCCL's take tens of microseconds each, two in every layer. Whether they are right and sooner than NCCL's is found out
when the ranks meet, on these GPUs and links; where they are not, NCCL goes on doing them all.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quire.config.sizes import decimal_size
from quire.parallel.peer_memory import NoPeerMemory, PeerMemory, open_peer_memory

_log = logging.getLogger(__name__)

Sum = Callable[[Tensor], Tensor]
"""Of a tensor over all ranks, in place."""

_MOST_BYTES = 1 << 20
"""Of a sum: each rank reads all of every other one's, where a ring moves two parts of it in all."""
_MOST_RANKS = 16
_SIZES = tuple(1 << power for power in range(13, _MOST_BYTES.bit_length()))
"""Bytes of the sums that are timed."""
_CALLS, _REPLAYS = 16, 3
_LOOKS = 1 << 21
"""At a signal that does not come, while it is not known whether signals do: a few seconds."""


class SmallSums:
    """One rank's view. All ranks make the same calls in the same order, of the same sizes, on one stream."""

    def __init__(self, memory: PeerMemory, rank: int, half_bytes: int) -> None:
        from quire.ops.triton.one_shot_all_reduce import DTYPES, PROGRAMS

        self.most_bytes = half_bytes
        """Of a sum that is made here."""
        self._memory = memory
        self._rank = rank
        self._half_bytes = half_bytes
        self._dtypes = DTYPES
        device = memory.own.device
        self._calls = torch.zeros(PROGRAMS, dtype=torch.int32, device=device)
        self._gone = torch.zeros(1, dtype=torch.int32, device=device)

    def takes(self, x: Tensor) -> bool:
        return 0 < x.nbytes <= self.most_bytes and x.dtype in self._dtypes

    def add_up(self, x: Tensor, **limits: int) -> Tensor:
        """The sum over all ranks, in place: the same bits on every rank. x is contiguous."""
        from quire.ops.triton.one_shot_all_reduce import one_shot_all_reduce

        memory = self._memory
        return one_shot_all_reduce(x, memory.addresses, self._calls, self._gone, self._rank, self._half_bytes, **limits)

    def abandon(self) -> None:
        """Another rank is gone: let the device stop waiting for it. To be called from another thread."""
        with torch.cuda.stream(torch.cuda.Stream(self._gone.device)):  # type: ignore[no-untyped-call]
            self._gone.fill_(1)


def start_small_sums(store: Any, rank: int, ranks: int, device: torch.device, plain: Sum) -> SmallSums | None:
    """All ranks call it, and all get one or none. `plain` makes the sums that these are compared with."""
    from quire.ops.triton.one_shot_all_reduce import signal_bytes

    if not 1 < ranks <= _MOST_RANKS:
        return None
    try:
        memory = open_peer_memory(store, rank, ranks, signal_bytes(ranks) + 2 * _MOST_BYTES, device)
    except NoPeerMemory as error:
        _log.info("small sums stay with NCCL: %s", error)
        return None
    sums = SmallSums(memory, rank, _MOST_BYTES)
    if not agree(plain, ranks, device, are_right(sums, plain, rank, device)):
        _log.warning("small sums stay with NCCL: what these GPUs read of each other's memory is wrong or never comes")
        return None
    sums.most_bytes = _worth_it(sums, plain, ranks, device)
    if not sums.most_bytes:
        _log.info("small sums stay with NCCL, which is sooner on these links")
        return None
    _log.info("sums of up to %s go through peer memory", decimal_size(sums.most_bytes))
    return sums


def agree(plain: Sum, ranks: int, device: torch.device, mine: bool) -> bool:
    """Whether it is so on every rank."""
    return int(plain(torch.tensor([float(mine)], device=device)).item()) == ranks


def are_right(sums: SmallSums, plain: Sum, rank: int, device: torch.device) -> bool:
    """Whether sums of whole numbers, which every order adds up to the same, are those of `plain`."""
    random = torch.Generator(device).manual_seed(rank)
    right = True
    for dtype in (torch.bfloat16, torch.float32):
        for count in (1, 37, 4096, 100_003, _MOST_BYTES // dtype.itemsize):
            x = torch.randint(-8, 9, (count,), generator=random, device=device).to(dtype)
            wanted = plain(x.clone())
            # on after a failure too: the others count on it
            right &= torch.equal(sums.add_up(x, most_looks=_LOOKS), wanted)
    return right


def _worth_it(sums: SmallSums, plain: Sum, ranks: int, device: torch.device) -> int:
    """The size up to which all sums are sooner than `plain` makes them, on every rank; 0: none is."""
    most = 0
    for size in _SIZES:
        x = torch.zeros(size // 2, dtype=torch.bfloat16, device=device)
        sooner = _milliseconds(sums.add_up, x) < _milliseconds(plain, x)
        if not agree(plain, ranks, device, sooner):
            break
        most = size
    return most


def _milliseconds(work: Sum, x: Tensor) -> float:
    """Of calls in a CUDA graph, as decode steps make them."""
    work(x)  # whatever connects or compiles does so here, which no graph may hold
    torch.cuda.synchronize(x.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(_CALLS):
            work(x)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    graph.replay()
    begin.record()
    for _ in range(_REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))
