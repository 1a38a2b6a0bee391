"""latent_attention on GPUs: which form of it, and which kernel, attends in which step."""

from torch import Tensor

from quire.core.pasts import Pasts
from quire.ops.triton.attend_expanded import attend_expanded
from quire.ops.triton.attend_latent_split import attend_latent_split
from quire.ops.triton.attend_latent_tiles import attend_latent_tiles
from quire.ops.triton.multiply_heads import multiply_heads
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
    pasts: Pasts | None = None,
) -> Tensor:
    """See `quire.ops.functional.latent_attention`. The output is contiguous; the scale is above 0.

    Every sequence has a new token, so as many tokens as sequences are one each. Prompts without a past have keys and
    values made of their latents, which are few; whatever looks back at a cache does so in absorbed form.
    """
    num_tokens, num_heads, _ = query.shape
    num_sequences, latent_dim = len(lengths), up.shape[1]
    keys = up[: num_heads * nope_dim].view(num_heads, nope_dim, latent_dim)
    values = up[num_heads * nope_dim :].view(num_heads, -1, latent_dim)
    output = query.new_empty(num_tokens, num_heads, values.shape[1])
    if num_tokens == num_sequences:
        pasts = Pasts(num_sequences, num_tokens, num_sequences, num_tokens)
    elif pasts is None:
        pasts = Pasts(num_sequences, num_tokens, 0, 0)
    sequences, tokens, first_fresh, first_fresh_token = pasts
    if tokens:
        absorbed = query.new_empty(tokens, num_heads, latent_dim)
        multiply_heads(absorbed, query[:tokens, :, :nope_dim], keys.transpose(1, 2))
        places = (absorbed, query[:tokens], cache, tables[:sequences])
        if tokens == sequences:
            found = attend_latent_split(*places, lengths[:sequences], nope_dim, scale, scales)
        else:
            starts = query_starts[: sequences + 1]
            found = attend_latent_tiles(*places, starts, lengths[:sequences], nope_dim, scale, scales)
        multiply_heads(output[:tokens], found, values)
    if first_fresh_token < num_tokens:
        expanded = linear(latents[first_fresh_token:, :latent_dim], up, None)
        given = (query, expanded, latents, query_starts[first_fresh:], lengths[first_fresh:])
        attend_expanded(output, *given, nope_dim, scale, first_fresh_token)
    return output
