"""count_tokens on a GPU, in one launch. Rows come once, but for the spare one, which counts nothing."""

import triton
import triton.language as tl
from torch import Tensor

from quire.ops.adjustments import OUTPUT_UNIT
from quire.ops.row_tensors import RowTensors

_BLOCK = 128
_OUTPUT_UNIT = tl.constexpr(OUTPUT_UNIT)


@triton.jit(do_not_specialize=["count"])
def _count_tokens(addresses_at, rows_at, tokens_at, count, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    there = place < count
    row = tl.load(rows_at + place, mask=there, other=0)
    token = tl.load(tokens_at + place, mask=there, other=0)
    address = tl.load(addresses_at + row, mask=there, other=0)
    counts = address.to(tl.pointer_type(tl.int32)) + token
    counted = tl.load(counts, mask=address != 0, other=0)
    tl.store(counts, counted + _OUTPUT_UNIT, mask=address != 0)


def count_tokens(counts: RowTensors, rows: Tensor, tokens: Tensor) -> None:
    if len(rows):
        grid = (triton.cdiv(len(rows), _BLOCK),)
        _count_tokens[grid](counts.addresses, rows, tokens, len(rows), block=_BLOCK, num_warps=4)
