"""Drops unlikely tokens: min-p, then top-k of what is left, then top-p of what is left.

Each of the three keeps the tokens at or above some logit, so together they are one threshold per row:
- min-p keeps what is at least `min_p` times as likely as the most likely token;
- top-k keeps the k most likely, and every token as likely as the k-th;
- top-p keeps a token when those strictly likelier weigh less than `top_p` of the survivors' mass. Equal tokens share
  their fate, so the result does not depend on a sort's order; the most likely token always stays.
"""

import torch
from torch import Tensor

from quire.ops.reference.softmax_weights import softmax_weights

_NOTHING = float("-inf")


def top_k_top_p_min_p(
    logits: Tensor,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
    *,
    width: int | None = None,
) -> Tensor:
    """Float32 `logits` [n, vocab], already divided by the temperature, with dropped tokens at -inf.

    Per row [n]: `top_k` (0 or less keeps all), `top_p` (1 keeps all), `min_p` (0 keeps all). `width` bounds every
    `top_k` and promises that each row with a `top_p` below 1 has a `top_k`; then no vocabulary is sorted.
    """
    peak = logits.amax(dim=-1, keepdim=True)
    floor = peak + torch.log(min_p[:, None]) if min_p is not None else peak.new_full(peak.shape, _NOTHING)
    if top_k is not None or top_p is not None:
        ordered = _largest(logits, width)
        if top_k is not None:
            floor = torch.maximum(floor, _top_k_floor(ordered, top_k[:, None]))
        if top_p is not None:
            floor = torch.maximum(floor, _top_p_floor(logits, ordered, top_p[:, None], floor, peak))
    return logits.masked_fill(logits < floor, _NOTHING)


def _largest(logits: Tensor, width: int | None) -> Tensor:
    if width is not None and width < logits.shape[-1]:
        return torch.topk(logits, width, dim=-1).values
    return torch.sort(logits, dim=-1, descending=True).values


def _top_k_floor(ordered: Tensor, top_k: Tensor) -> Tensor:
    kth = ordered.gather(1, top_k.clamp(1, ordered.shape[-1]) - 1)
    return torch.where(top_k > 0, kth, _NOTHING)


def _top_p_floor(logits: Tensor, ordered: Tensor, top_p: Tensor, floor: Tensor, peak: Tensor) -> Tensor:
    # Tokens as likely as the k-th may lie beyond `ordered`, so the mass is taken over the vocabulary.
    mass = torch.where(logits >= floor, softmax_weights(logits, peak), 0).sum(dim=-1, keepdim=True)
    weights = torch.where(ordered >= floor, softmax_weights(ordered, peak), 0)
    likelier = weights.cumsum(dim=-1) - weights
    kept = (likelier.double() < top_p.double() * mass.double()).sum(dim=-1, keepdim=True)
    last = ordered.gather(1, kept.clamp(min=1) - 1)
    return torch.where(top_p < 1, last, _NOTHING)
