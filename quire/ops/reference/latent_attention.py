"""latent_attention: the definition, one sequence after the other, in absorbed form."""

import torch
from torch import Tensor

from quire.core.pasts import Pasts
from quire.ops.reference.kv_numbers import read_blocks
from quire.ops.reference.paged_attention import attend, causal_mask


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
    """See `quire.ops.functional.latent_attention`."""
    num_heads, latent_dim = query.shape[1], up.shape[1]
    keys, values = up[: num_heads * nope_dim].float(), up[num_heads * nope_dim :].float()
    absorbed = torch.einsum("thn,hnl->thl", query[..., :nope_dim].float(), keys.view(num_heads, nope_dim, latent_dim))
    wide = torch.cat((absorbed, query[..., nope_dim:].float()), dim=-1)
    found = torch.empty_like(absorbed)
    block_size, starts = cache.shape[1], query_starts.tolist()
    for sequence, length in enumerate(lengths.tolist()):
        begin, end = starts[sequence], starts[sequence + 1]
        blocks = tables[sequence, : -(-length // block_size)].long()
        read = read_blocks(cache, blocks, None if scales is None else scales[0])[:length].unsqueeze(1)
        mask = causal_mask(length - (end - begin), length, 0, None, query.device)
        found[begin:end] = attend(wide[begin:end], read, read[..., :latent_dim], mask, scale, None)
    return torch.einsum("thl,hvl->thv", found, values.view(num_heads, -1, latent_dim)).to(query.dtype)
