"""paged_attention against the textbook, on shapes that are normal and shapes that are not."""

import math

import pytest
import torch

from quire.ops.functional import packed_attention, paged_attention, write_kv


def textbook(query, key, value, first_query, scale, window, softcap, sinks=None, chunk=None):
    """One sequence, one query and head at a time."""
    output = torch.zeros_like(query)
    group = query.shape[1] // key.shape[1]
    for row in range(query.shape[0]):
        position = first_query + row
        start = 0 if window is None else max(0, position - window + 1)
        start = start if chunk is None else position - position % chunk
        for head in range(query.shape[1]):
            seen = key[start : position + 1, head // group]
            scores = seen @ query[row, head] * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            shares = scores.exp() / (scores.exp().sum() + (0 if sinks is None else sinks[head].exp()))
            output[row, head] = shares @ value[start : position + 1, head // group]
    return output


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 4, 8), (6, 2, 16), (3, 1, 5)])
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (5, None), (None, 3.0), (1, 2.0)])
@pytest.mark.parametrize(("with_sinks", "chunk"), [(False, None), (True, None), (False, 8), (True, 7)])
def test_any_mix_of_chunks_and_decodes(block_size, heads, kv_heads, head_dim, window, softcap, with_sinks, chunk):
    if window is not None and chunk is not None:
        pytest.skip("a layer has a window or chunks")
    generator = torch.Generator().manual_seed(heads * 100 + block_size)
    sinks = torch.randn(heads, generator=generator) if with_sinks else None
    shape = [(1, 1), (9, 9), (20, 1), (33, 7), (16, 16)]  # (length, new tokens)
    most = max(-(-length // block_size) for length, _ in shape)
    num_blocks = sum(-(-length // block_size) for length, _ in shape)
    order = iter((torch.randperm(num_blocks, generator=generator) + 1).tolist())
    tables = torch.zeros(len(shape), most, dtype=torch.int32)
    keys, values = (torch.full((num_blocks + 1, block_size, kv_heads, head_dim), math.nan) for _ in range(2))
    queries, expected, starts = [], [], [0]
    for place, (length, new) in enumerate(shape):
        key, value = (torch.randn(length, kv_heads, head_dim, generator=generator) for _ in range(2))
        query = torch.randn(new, heads, head_dim, generator=generator)
        blocks = [next(order) for _ in range(-(-length // block_size))]
        tables[place, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
        positions = torch.arange(length)
        slots = torch.tensor(blocks)[positions // block_size] * block_size + positions % block_size
        write_kv(key, value, keys, values, slots)
        queries.append(query)
        expected.append(textbook(query, key, value, length - new, 0.3, window, softcap, sinks, chunk))
        starts.append(starts[-1] + new)
    lengths = torch.tensor([length for length, _ in shape])
    found = paged_attention(
        torch.cat(queries),
        keys,
        values,
        tables,
        torch.tensor(starts),
        lengths,
        scale=0.3,
        window=window,
        softcap=softcap,
        sinks=sinks,
        chunk=chunk,
    )
    torch.testing.assert_close(found, torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_packed_sequences_see_only_themselves():
    query, key, value = (torch.randn(7, 2, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    found = packed_attention(query, key, value, torch.tensor([0, 3, 7]), scale=0.5)
    for begin, end in ((0, 3), (3, 7)):
        parts = [tensor[begin:end].transpose(0, 1) for tensor in (query, key, value)]
        alone = torch.nn.functional.scaled_dot_product_attention(*parts, scale=0.5).transpose(0, 1)
        torch.testing.assert_close(found[begin:end], alone)
