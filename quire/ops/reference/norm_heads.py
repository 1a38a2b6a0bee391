"""norm_heads: the definition of HeadNorms, a part of prepare_heads."""

import torch
from torch import Tensor

from quire.ops.head_norms import HeadNorms
from quire.ops.reference.rms_norm import rms_norm


def norm_heads(heads: Tensor, weight: Tensor, norms: HeadNorms) -> Tensor:
    """Queries or keys [tokens, heads, head_dim], whose `weight` is one of those of `norms`; rounded once at the end."""
    vectors = heads.flatten(1) if norms.span == "all" else heads
    if norms.kind == "layer":
        vectors = _standardised(vectors, weight, norms.eps, norms.offset)
    else:
        vectors = rms_norm(vectors, weight, norms.eps, norms.offset)
    return vectors.view(heads.shape)


def _standardised(x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
    wide = x.float()
    centred = wide - wide.mean(dim=-1, keepdim=True)
    normed = centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps)
    return (normed * (weight.float() + offset)).to(x.dtype)
