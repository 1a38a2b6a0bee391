"""prepare_latent: from a layer's projections to its queries and latents; these go to the cache on the way."""

import torch
from torch import Tensor

from quire.ops.reference.kv_numbers import write_slots
from quire.ops.reference.rms_norm import rms_norm
from quire.ops.reference.rotary import rotary


def prepare_latent(
    query: Tensor,
    compressed: Tensor,
    weight: Tensor,
    eps: float,
    angles: tuple[Tensor, Tensor],
    cache: Tensor,
    slots: Tensor,
    scales: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """See `quire.ops.functional.prepare_latent`."""
    rope_dim, latent_dim = 2 * angles[0].shape[-1], weight.shape[0]
    nope_dim = query.shape[-1] - rope_dim
    turned = torch.cat((query[..., :nope_dim], rotary(query[..., nope_dim:], *angles)), dim=-1)
    rotary_key = rotary(compressed[:, latent_dim:].unsqueeze(1), *angles).squeeze(1)
    latents = torch.cat((rms_norm(compressed[:, :latent_dim], weight, eps, 0.0), rotary_key), dim=-1)
    write_slots(latents, cache, slots, None if scales is None else scales[0])
    return turned, latents
