"""A token's attention is right, and the same bits however its sequence came to be where it is."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from quire.ops.reference.paged_attention import paged_attention as reference
from tests.ops.triton.device import DEVICE, TOLERANCES, needs_triton
from tests.ops.triton.test_paged_attention import DECODES, MIXED, Sequences, Step, make_step
from tests.rarely import rarely

pytestmark = needs_triton

LONG = 4100
"""From position 4096 on, parts are twice as large."""


def attend(step: Step, window: int | None = None, softcap: float | None = None) -> Tensor:
    from quire.ops.triton.batch_invariant_attention import batch_invariant_attention

    return batch_invariant_attention(*step.arguments(), 0.3, window, softcap)


@pytest.mark.parametrize(
    ("dtype", "sequences", "heads", "window", "softcap"),
    rarely(
        (
            (dtype, sequences, heads, *limits)
            for dtype in (torch.float16, torch.bfloat16)
            for sequences in (MIXED, DECODES)
            for heads in ((2, 4, 64), (1, 7, 80), (3, 1, 128))
            for limits in ((None, None), (24, None), (None, 20.0))
        ),
        every=5,
    ),
)
def test_equals_the_reference(
    dtype: torch.dtype, sequences: Sequences, heads: tuple[int, int, int], window: int | None, softcap: float | None
) -> None:
    step = make_step(sequences, heads, dtype)
    expected = reference(*step.arguments(), 0.3, window, softcap)
    torch.testing.assert_close(attend(step, window, softcap), expected, rtol=0, atol=TOLERANCES[dtype])


def chunk_of(step: Step, begin: int, end: int) -> Step:
    """A step whose only sequence is the first of another, its tokens from `begin` to `end` being new."""
    old = int(step.lengths[0] - step.query_starts[1])
    return Step(
        step.query[begin - old : end - old],
        step.keys,
        step.values,
        step.tables[:1],
        torch.tensor([0, end - begin], device=DEVICE),
        torch.tensor([end], device=DEVICE),
    )


def beside(step: Step, other: Step) -> Step:
    """Both in one step; the sequences of `other` come first. Their caches are put one behind the other."""
    width = max(step.tables.shape[1], other.tables.shape[1])
    tables = [torch.nn.functional.pad(each.tables, (0, width - each.tables.shape[1])) for each in (other, step)]
    return Step(
        torch.cat([other.query, step.query]),
        torch.cat([other.keys, step.keys]),
        torch.cat([other.values, step.values]),
        torch.cat([tables[0], tables[1] + len(other.keys)]),
        torch.cat([other.query_starts, step.query_starts[1:] + other.query_starts[-1]]),
        torch.cat([other.lengths, step.lengths]),
    )


@pytest.mark.parametrize(("length", "window"), [(330, None), (330, 70), (LONG, None)])
def test_chunks_and_neighbours_change_no_bit(length: int, window: int | None) -> None:
    heads = (1, 3, 16)
    whole = make_step(((length, 20),), heads, torch.float16)
    expected = attend(whole, window)
    first = length - 20
    cuts = (0, 1, 3, 20)
    chunks = [chunk_of(whole, first + begin, first + end) for begin, end in pairwise(cuts)]
    assert torch.equal(torch.cat([attend(chunk, window) for chunk in chunks]), expected)
    decode = chunk_of(whole, first + 14, first + 15)
    assert torch.equal(attend(decode, window)[0], expected[14])
    for others in (((5, 1), (300, 1)), ((5, 3), (40, 30))):
        step = beside(decode, make_step(others, heads, torch.float16, seed=1))
        assert torch.equal(attend(step, window)[-1], expected[14])


def test_programs_may_share_parts_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.ops.triton import batch_invariant_attention as kernels

    step = make_step(((600, 1), (40, 1)), (1, 4, 32), torch.float16)
    expected = attend(step)
    for programs in (0, 2):
        monkeypatch.setattr(kernels, "_PROGRAMS", programs)
        assert torch.equal(attend(step), expected)
