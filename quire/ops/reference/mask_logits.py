"""mask_logits: some rows of logits, each bound by a mask of its own, in place.

A logit that is no number, or +inf, stays what it is, as in `adjust_logits`: no mask hides that the model is broken.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from quire.ops.reference.apply_token_bitmask import apply_token_bitmask


def mask_logits(
    logits: Tensor,
    places: Tensor,
    masks: Tensor,
    mask: Callable[[Tensor, Tensor, Tensor], None] = apply_token_bitmask,
) -> None:
    for number, place in enumerate(places.tolist()):
        row = logits[place : place + 1]
        bound = row.float()  # the same memory, where that is what they are
        is_whole = float(bound.max()) < float("inf")  # NaN is no less
        own = bound if is_whole else bound.clone()
        mask(bound, masks, torch.tensor([number]))
        row.copy_(bound if is_whole else bound.where(own < float("inf"), own))
