"""Paged attention on a GPU, in bfloat16 and over KV in fp8: decodes, those with a shared prefix, and prompts."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from quire.bench.kernels.attention_cases import AttentionCase, AttentionInputs, make_inputs
from quire.bench.kernels.gpu_timing import time_calls
from quire.bench.kernels.result import KernelResult
from quire.ops.functional import Attend, paged_attention, shared_prefix_attention
from quire.ops.step_tensors import PrefixTiles
from quire.ops.triton.shared_prefix_attention import most_members

_IN_BFLOAT16 = (
    *(AttentionCase(sequences, 1024, 1, 32, 8, 128) for sequences in (1, 16, 64, 256)),
    AttentionCase(64, 16384, 1, 32, 8, 128),
    AttentionCase(256, 1152, 1, 32, 8, 128, shared_prefix=1024),
    AttentionCase(8, 2048, 2048, 32, 8, 128),
)
CASES = (*_IN_BFLOAT16, *(replace(case, fp8=True) for case in _IN_BFLOAT16))
"""Heads of llama-8b."""


def results(seconds: float) -> Iterator[KernelResult]:
    """`seconds` is for CPUs: a graph's replays take as long as they take."""
    for case in CASES:
        given = make_inputs(case, torch.bfloat16, "cuda")
        attend: Attend = paged_attention
        if case.shared_prefix:
            attend = partial(shared_prefix_attention, tiles=_tiles(case))
        times = time_calls([lambda a=attend, g=given, c=case: _attend(a, g, c)])  # type: ignore[misc]
        yield KernelResult("attention", str(case), times, case.bytes(2), case.operations())


def _tiles(case: AttentionCase) -> PrefixTiles:
    """All full."""
    members = torch.arange(case.sequences, dtype=torch.int32, device="cuda")
    shared = torch.full_like(members, case.shared_prefix)
    members = members.view(-1, most_members(case.heads // case.kv_heads))
    return PrefixTiles(members, shared[: len(members)], shared)


def _attend(attend: Attend, given: AttentionInputs, case: AttentionCase) -> object:
    scale = case.head_dim**-0.5
    return attend(given.query, given.keys, given.values, given.tables, given.starts, given.lengths, scale=scale)
