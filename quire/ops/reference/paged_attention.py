"""paged_attention: the definition (what vLLM calls PagedAttention), one sequence after the other."""

import torch
from torch import Tensor

from quire.ops.reference.kv_numbers import read_blocks


def paged_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """See `quire.ops.functional.paged_attention`."""
    output = torch.empty_like(query)
    block_size = keys.shape[1]
    key_scale, value_scale = (None, None) if scales is None else scales
    starts = query_starts.tolist()
    for sequence, length in enumerate(lengths.tolist()):
        begin, end = starts[sequence], starts[sequence + 1]
        first_query = length - (end - begin)
        # positions before the first that any query sees are not read: their blocks may be gone
        first_key = _first_seen(first_query, window, chunk)
        blocks = tables[sequence, first_key // block_size : -(-length // block_size)].long()
        offset = first_key // block_size * block_size
        key = read_blocks(keys, blocks, key_scale)[first_key - offset : length - offset]
        value = read_blocks(values, blocks, value_scale)[first_key - offset : length - offset]
        mask = causal_mask(first_query, length, first_key, window, query.device, chunk)
        output[begin:end] = attend(query[begin:end], key, value, mask, scale, softcap, sinks=sinks)
    return output


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    softcap: float | None,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """softmax(cap(query · key * scale) + bias) · value in float32; several query heads share a KV head in order.
    Values may be of another size than keys.

    mask: [queries, keys]; bias: [heads, queries, keys]; sinks: [heads], scores that take part in the softmax alone.
    """
    num_queries, num_heads, head_dim = query.shape
    num_kv_heads = key.shape[1]
    # [kv_heads, group * queries, head_dim]: the queries that share a KV head stand together
    grouped = query.float().view(num_queries, num_kv_heads, num_heads // num_kv_heads, head_dim)
    grouped = grouped.permute(1, 2, 0, 3).reshape(num_kv_heads, -1, head_dim)
    scores = grouped @ key.float().permute(1, 2, 0) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias.float().reshape(scores.shape)
    if mask is not None:
        scores = scores.view(num_kv_heads, -1, num_queries, key.shape[0]).masked_fill(~mask, float("-inf"))
        scores = scores.view(num_kv_heads, -1, key.shape[0])
    if sinks is not None:
        each = sinks.float().repeat_interleave(num_queries).view(num_kv_heads, -1, 1)
        scores = torch.cat((scores, each), dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : key.shape[0]]
    mixed = weights @ value.float().permute(1, 0, 2)
    mixed = mixed.view(num_kv_heads, num_heads // num_kv_heads, num_queries, -1)
    return mixed.permute(2, 0, 1, 3).reshape(num_queries, num_heads, -1).to(query.dtype)


def _first_seen(position: int, window: int | None, chunk: int | None) -> int:
    if chunk is not None:
        return position // chunk * chunk
    return 0 if window is None else max(0, position - window + 1)


def causal_mask(
    first_query: int,
    length: int,
    first_key: int,
    window: int | None,
    device: torch.device,
    chunk: int | None = None,
) -> Tensor | None:
    """[queries, keys]: what each query may see; None when that is everything."""
    if length - first_query == 1:
        return None  # a decode sees all that was gathered for it
    queries = torch.arange(first_query, length, device=device).unsqueeze(1)
    positions = torch.arange(first_key, length, device=device)
    mask = positions <= queries
    if chunk is not None:
        return mask & (positions // chunk == queries // chunk)
    return mask if window is None else mask & (positions > queries - window)
