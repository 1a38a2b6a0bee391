"""One-shot all-reduce over peer memory: one kernel adds up what all ranks of a host have, where that is little.

Each rank copies its own part to a buffer that all others can read, tells them, waits until all have told it, and adds
up all parts itself: one exchange of signals instead of the many of a ring. All add in the order of ranks, so that each
gets the same bits. Memory of a rank:

    signals  int32 [programs, ranks]: the call up to which this rank's program may read that rank's buffer
    halves   2 × `half_bytes`: parts of even calls and of odd ones

A half may be written again without another signal: a rank that has come to call n + 1 has ended call n, since kernels
of one stream follow each other, and this rank has waited for its call n + 1 before it begins n + 2.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 32
"""Of every call, however little there is to add up, so that all count the same calls. They wait for those of other
ranks, so all must be on the device at once."""
_BLOCK = 2048
_FOR_EVER = 2**62
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def signal_bytes(ranks: int) -> int:
    """What lies before the two halves of a rank's memory, which begin at a multiple of 128 bytes."""
    return -(-PROGRAMS * ranks * 4 // 128) * 128


def one_shot_all_reduce(
    x: Tensor, peers: Tensor, calls: Tensor, gone: Tensor, rank: int, half_bytes: int, most_looks: int = _FOR_EVER
) -> Tensor:
    """The sum over all ranks, in place; x is contiguous and has at most `half_bytes`.

    peers: int64 [ranks], where each rank's memory lies. calls: int32 [PROGRAMS], zeros at first. gone: int32 [1], which
    somebody sets to 1 so that all waiting ends; so it does after `most_looks` at a signal. The sum is nothing then.
    """
    assert x.is_contiguous()
    assert x.nbytes <= half_bytes
    ranks = len(peers)
    _one_shot[(PROGRAMS,)](
        x,
        peers,
        calls,
        gone,
        x.numel(),
        half_bytes,
        most_looks,
        rank=rank,
        ranks=ranks,
        halves_at=signal_bytes(ranks),
        block=_BLOCK,
        num_warps=8,
    )
    return x


@triton.jit
def _part(memory, call, kind: tl.constexpr, half_bytes, halves_at: tl.constexpr):
    """Where a rank's numbers of this call are in its memory."""
    half = memory + halves_at + (call & 1).to(tl.int64) * half_bytes  # % would be negative once calls are
    return tl.multiple_of(half.to(tl.pointer_type(kind)), 16)


@triton.jit(do_not_specialize=["most_looks"])
def _one_shot(
    x_at,
    peers_at,
    calls_at,
    gone_at,
    count,
    half_bytes,
    most_looks,
    rank: tl.constexpr,
    ranks: tl.constexpr,
    halves_at: tl.constexpr,
    block: tl.constexpr,
):
    program = tl.program_id(0)
    call = tl.load(calls_at + program) + 1
    kind: tl.constexpr = x_at.dtype.element_ty
    own = tl.load(peers_at + rank)
    own_part = _part(own, call, kind, half_bytes, halves_at)
    for start in range(program * block, count, tl.num_programs(0) * block):
        place = start + tl.arange(0, block)
        tl.store(own_part + place, tl.load(x_at + place, mask=place < count), mask=place < count)
    # one thread tells the others, once all threads have written
    tl.debug_barrier()
    for other in tl.static_range(ranks):
        signals = tl.load(peers_at + other).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(signals + program * ranks + rank, call, sem="release", scope="sys")
    signals = own.to(tl.pointer_type(tl.int32)) + program * ranks
    looks = most_looks
    for other in tl.static_range(ranks):
        # it may be a call ahead already; differences are right where numbers of calls wrap around, after some days
        while (tl.atomic_add(signals + other, 0, sem="acquire", scope="sys") - call < 0) & (looks > 0):
            looks -= 1
            if tl.atomic_add(gone_at, 0, sem="relaxed", scope="sys") != 0:
                looks = looks * 0
    tl.debug_barrier()
    for start in range(program * block, count, tl.num_programs(0) * block):
        place = start + tl.arange(0, block)
        total = tl.zeros([block], tl.float32)
        for other in tl.static_range(ranks):
            part = _part(tl.load(peers_at + other), call, kind, half_bytes, halves_at)
            total += tl.load(part + place, mask=place < count, other=0.0).to(tl.float32)
        tl.store(x_at + place, total.to(kind), mask=place < count)
    tl.store(calls_at + program, call)
