"""latent_attention on GPUs: which form of it, and which kernel, attends in which step."""

import torch
from torch import Tensor

from quire.ops.triton.attend_expanded import attend_expanded
from quire.ops.triton.attend_latent_split import attend_latent_split
from quire.ops.triton.attend_latent_tiles import attend_latent_tiles
from quire.ops.triton.skinny_gemm import linear


def latent_attention(
    query: Tensor,
    latents: Tensor,
    up: Tensor,
    cache: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    nope_dim: int,
    scale: float,
    scales: Tensor | None = None,
    is_fresh: bool = False,
) -> Tensor:
    """See `quire.ops.functional.latent_attention`. The output is contiguous; the scale is above 0.

    Every sequence has a new token, so as many tokens as sequences are one each. Prompts without a past have keys and
    values made of their latents, which are few; whatever looks back at a cache does so in absorbed form.
    """
    num_tokens, num_heads, _ = query.shape
    latent_dim = up.shape[1]
    keys, values = up[: num_heads * nope_dim], up[num_heads * nope_dim :]
    if not num_tokens:
        return query.new_empty(0, num_heads, len(values) // num_heads)
    absorbing = keys.view(num_heads, nope_dim, latent_dim)
    releasing = values.view(num_heads, -1, latent_dim)
    if num_tokens == len(lengths):
        absorbed = _absorbed(query, absorbing)
        found = attend_latent_split(absorbed, query, cache, tables, lengths, nope_dim, scale, scales)
        return _released(found, releasing)
    if is_fresh:
        output = query.new_empty(num_tokens, num_heads, releasing.shape[1])
    else:
        found = attend_latent_tiles(
            _absorbed(query, absorbing),
            query,
            cache,
            tables,
            query_starts,
            lengths,
            nope_dim,
            scale,
            scales,
            with_past_alone=True,
        )
        output = _released(found, releasing)
    expanded = linear(latents[:, :latent_dim], up, None)
    attend_expanded(output, query, expanded, latents, query_starts, lengths, nope_dim, scale)
    return output


def _absorbed(query: Tensor, absorbing: Tensor) -> Tensor:
    """[tokens, heads, latent_dim]: what multiplies with latents as the queries do with keys that are made of them."""
    num_heads, nope_dim, latent_dim = absorbing.shape
    absorbed = query.new_empty(len(query), num_heads, latent_dim)
    torch.bmm(query[..., :nope_dim].transpose(0, 1), absorbing, out=absorbed.transpose(0, 1))
    return absorbed


def _released(found: Tensor, releasing: Tensor) -> Tensor:
    """[tokens, heads, value_dim]: values of what heads found among latents."""
    output = found.new_empty(len(found), *releasing.shape[:2])
    torch.bmm(found.transpose(0, 1), releasing.transpose(1, 2), out=output.transpose(0, 1))
    return output
