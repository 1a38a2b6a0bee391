"""read_memory: nothing but reading, to find out how fast a GPU can. No step uses it; benchmarks do."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def read_kernel(sums_at, values_at, count, block: tl.constexpr, stages: tl.constexpr):
    """One program's share of the values, added up: a read whose result nobody uses would be left out."""
    program = tl.program_id(0)
    places = tl.arange(0, block)
    total = tl.zeros([block], tl.int32)
    for start in tl.range(program * block, count, tl.num_programs(0) * block, num_stages=stages):
        within = start + places < count
        total += tl.load(values_at + start + places, mask=within, other=0, eviction_policy="evict_first")
    tl.store(sums_at + program, tl.sum(total, 0))


def read_memory(values: Tensor, programs: int, block: int, num_warps: int = 8, stages: int = 4) -> Tensor:
    """Sums of int32 values [count], one for each program, modulo 2³²."""
    sums = torch.empty(programs, dtype=torch.int32, device=values.device)
    read_kernel[(programs,)](sums, values, len(values), block=block, stages=stages, num_warps=num_warps)
    return sums
