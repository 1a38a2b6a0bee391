"""Dummy sequences: what a worker computes before any request is there."""

from quire.config.resolved import KVLayout
from quire.core.plan import Admission
from quire.core.sampling_params import SamplingParams

_GREEDY = SamplingParams(temperature=0.0)


def dummy_sequence(
    row: int, num_tokens: int, layout: KVLayout, params: SamplingParams = _GREEDY, adapter: int = -1
) -> Admission:
    """One at `row` whose KV goes to block 0, which nobody reads; `adapter` is a slot, which may be empty."""
    blocks = [0] * (-(-(num_tokens + 1) // layout.block_size))
    return Admission(
        row=row,
        request_id=f"dummy {row}",
        index=0,
        params=params,
        tokens=[0] * num_tokens,
        num_prompt=num_tokens,
        num_computed=0,
        tables=[blocks for _ in layout.groups],
        adapter=adapter,
    )
