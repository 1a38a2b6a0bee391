"""torch's fused attention, where it is faster than scores that are written down."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from quire.ops.reference.packed_attention import packed_attention as by_definition


def fused_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Every query sees every key. All [tokens, heads, head_dim]; several query heads may share a KV head, in order."""
    mixed = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return mixed[0].transpose(0, 1)


def packed_attention(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, scale: float, window: int | None, bias: Tensor | None
) -> Tensor:
    """See `quire.ops.functional.packed_attention`."""
    if window is not None or bias is not None:
        return by_definition(query, key, value, starts, scale, window, bias)
    output = torch.empty_like(query)
    for begin, end in pairwise(starts.tolist()):
        output[begin:end] = fused_attention(query[begin:end], key[begin:end], value[begin:end], scale)
    return output
