"""cross_attention: on a CPU as the definition, and as softmax says."""

import pytest
import torch

from quire.ops.cpu.cross_attention import cross_attention as on_cpu
from quire.ops.reference.cross_attention import cross_attention


def case(tokens, slots, positions, heads, size, dtype):
    generator = torch.Generator().manual_seed(tokens)
    padded = -(-positions // 16) * 16
    keys, values = (torch.full((slots, padded, heads, size), torch.nan, dtype=dtype) for _ in "kv")
    for kept in (keys, values):
        kept[:, :positions] = torch.randn(slots, positions, heads, size, generator=generator).to(dtype)
    query = torch.randn(tokens, heads, size, generator=generator).to(dtype)
    chosen = torch.randint(slots, (tokens,), generator=generator).sort().values.roll(1)
    return query, keys, values, chosen


@pytest.mark.parametrize(("shape", "dtype"), [((7, 3, 50, 4, 16), torch.float32), ((3, 2, 33, 2, 8), torch.bfloat16)])
def test_as_the_definition(shape, dtype):
    query, keys, values, slots = case(*shape, dtype)
    wanted = cross_attention(query, keys, values, slots, shape[2], 0.3)
    near = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(on_cpu(query, keys, values, slots, shape[2], 0.3), wanted, atol=near, rtol=near)


def test_the_definition():
    query, keys, values, slots = case(2, 3, 20, 2, 8, torch.float32)
    found = cross_attention(query, keys, values, slots, 20, 0.5)
    for token, slot in enumerate(slots.tolist()):
        weights = torch.softmax(torch.einsum("hd,phd->hp", query[token], keys[slot, :20]) * 0.5, -1)
        torch.testing.assert_close(found[token], torch.einsum("hp,phd->hd", weights, values[slot, :20]))
