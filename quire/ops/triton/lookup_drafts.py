"""lookup_drafts on a GPU, in one launch: a program reads a row from its beginning to its end, and recent texts too.

Only places that agree so far read on, so that a row costs little more than its tokens once.
"""

import triton
import triton.language as tl
from torch import Tensor

from quire.ops.step_tensors import RowStates

_STRETCH = 4096
"""Tokens that a program looks at in one go, 16 for each thread of 8 warps."""


@triton.jit(do_not_specialize=["last_place"])
def _lookup_drafts(
    rows_at,
    tokens_at,
    row_tokens,
    num_computed_at,
    ready_at,
    may_draft_at,
    last_place,
    recent_at,
    num_recent,
    fewest: tl.constexpr,
    most: tl.constexpr,
    count: tl.constexpr,
    stretch: tl.constexpr,
):
    row = tl.load(rows_at + tl.program_id(0))
    known_at = tokens_at + row * row_tokens
    last = tl.minimum(tl.load(num_computed_at + row), last_place)
    may_draft = tl.load(may_draft_at + row)
    best = tl.zeros((), tl.int64)  # how many agree, and where: the larger is the better
    end = tl.where(may_draft, last, 0)
    for start in range(0, end, stretch):
        place = start + tl.arange(0, stretch).to(tl.int64)
        agrees = place < end
        agree = tl.zeros((stretch,), tl.int64)
        for back in tl.static_range(most):
            wanted = tl.load(known_at + last - back, mask=last >= back, other=-1)
            there = tl.load(known_at + place - back, mask=agrees & (place >= back), other=-2)
            agrees = agrees & (there == wanted)
            agree += agrees.to(tl.int64)
        score = tl.where(agree >= fewest, agree * row_tokens + place, 0)
        best = tl.maximum(best, tl.max(score, axis=0))
    found = best > 0
    at = best % row_tokens
    period = last - at
    if recent_at is not None:
        other = tl.zeros((), tl.int64)
        enough = tl.maximum(best // row_tokens + 1, fewest)
        for start in range(0, tl.where(may_draft, num_recent - 1, 0), stretch):
            place = start + tl.arange(0, stretch).to(tl.int64)
            agrees = place < num_recent - 1
            agree = tl.zeros((stretch,), tl.int64)
            for back in tl.static_range(most):
                wanted = tl.load(known_at + last - back, mask=last >= back, other=-3)
                there = tl.load(recent_at + place - back, mask=agrees & (place >= back), other=-2)
                agrees = agrees & (there == wanted)
                agree += agrees.to(tl.int64)
            follows = tl.load(recent_at + place + 1, mask=agree >= enough, other=-1) >= 0
            score = tl.where(follows, agree * num_recent + place, 0)
            other = tl.maximum(other, tl.max(score, axis=0))
        is_other = other > 0
        begin = other % num_recent + 1
        drafts = tl.zeros((), tl.int64)
        goes_on = is_other
        for number in tl.static_range(count):
            token = tl.load(recent_at + begin + number, mask=goes_on & (begin + number < num_recent), other=-1)
            goes_on = goes_on & (token >= 0)
            tl.store(known_at + last + 1 + number, token, mask=goes_on & (last + 1 + number < row_tokens))
            drafts += goes_on.to(tl.int64)
        found = found & (other == 0)
        tl.store(ready_at + row, tl.where(is_other, drafts, tl.where(found, count, 0).to(tl.int64)))
    else:
        tl.store(ready_at + row, tl.where(found, count, 0).to(tl.int64))
    for number in tl.static_range(count):
        source = tl.where(found, at + 1 + number % tl.maximum(period, 1), 0)
        token = tl.load(known_at + source)
        tl.store(known_at + last + 1 + number, token, mask=found & (last + 1 + number < row_tokens))


def lookup_drafts(
    states: RowStates,
    rows: Tensor,
    ready: Tensor,
    may_draft: Tensor,
    fewest: int,
    most: int,
    count: int,
    recent: Tensor | None = None,
) -> None:
    assert rows.is_contiguous(), f"the stride of rows is {rows.stride()}"
    if not len(rows):
        return
    row_tokens = states.tokens.shape[1]
    _lookup_drafts[(len(rows),)](
        rows,
        states.tokens,
        row_tokens,
        states.num_computed,
        ready,
        may_draft,
        row_tokens - 1,
        recent,
        0 if recent is None else recent.numel(),
        fewest=fewest,
        most=most,
        count=count,
        stretch=min(_STRETCH, triton.next_power_of_2(row_tokens)),
        num_warps=8,
    )
