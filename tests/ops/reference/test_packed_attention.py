"""packed_attention against torch's own attention, one sequence at a time."""

import pytest
import torch
from torch import Tensor

from quire.ops.functional import packed_attention

DTYPES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def alone(query: Tensor, key: Tensor, value: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """One sequence; `mask` [heads, tokens, tokens] is added to scores."""
    parts = [tensor.float().transpose(0, 1) for tensor in (query, key, value)]
    mixed = torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask, scale=scale)
    return mixed.transpose(0, 1).to(query.dtype)


def nearby(length: int, reach: int) -> Tensor:
    """0 where two positions are up to `reach` apart, else -inf."""
    mask = torch.zeros(length, length)
    for one in range(length):
        for other in range(length):
            if abs(one - other) > reach:
                mask[one, other] = -torch.inf
    return mask


def check(lengths: list[int], heads: int, size: int, dtype: torch.dtype, window: int | None, biased: bool) -> None:
    generator = torch.Generator().manual_seed(len(lengths) * 100 + heads)
    tokens = sum(lengths)
    query, key, value = (torch.randn(tokens, heads, size, generator=generator).to(dtype) for _ in range(3))
    bias = torch.randn(heads, max(lengths), max(lengths), generator=generator).to(dtype) if biased else None
    starts = torch.tensor([0, *lengths]).cumsum(0)
    found = packed_attention(query, key, value, starts, scale=0.3, window=window, bias=bias)
    assert found.dtype == dtype
    begin = 0
    for length in lengths:
        part = slice(begin, begin + length)
        mask = torch.zeros(heads, length, length) if bias is None else bias[:, :length, :length].float()
        if window is not None:
            mask = mask + nearby(length, window // 2)
        expected = alone(query[part], key[part], value[part], scale=0.3, mask=mask)
        torch.testing.assert_close(found[part], expected, atol=DTYPES[dtype], rtol=DTYPES[dtype])
        begin += length


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("window", [None, 0, 1, 4, 7, 200])
@pytest.mark.parametrize(("lengths", "heads", "size"), [([16, 33, 64], 4, 32), ([1, 7, 2, 5], 3, 5)])
def test_any_lengths(
    lengths: list[int], heads: int, size: int, window: int | None, biased: bool, dtype: torch.dtype
) -> None:
    check(lengths, heads, size, dtype, window, biased)


def test_a_window_of_four_sees_five() -> None:
    """As transformers has it for ModernBERT: a distance of `local_attention // 2` is still seen, one more is not."""
    value = torch.eye(9).unsqueeze(1)
    found = packed_attention(
        torch.zeros(9, 1, 9), torch.zeros(9, 1, 9), value, torch.tensor([0, 9]), scale=1.0, window=4
    )
    assert [place for place, weight in enumerate(found[4, 0].tolist()) if weight] == [2, 3, 4, 5, 6]
    assert [place for place, weight in enumerate(found[0, 0].tolist()) if weight] == [0, 1, 2]
    torch.testing.assert_close(found[4, 0, 2:7], torch.full((5,), 0.2))
