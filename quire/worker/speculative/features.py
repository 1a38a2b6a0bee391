"""Features: what the large model has made of every token, in the same slots of memory as its KV.

A head that drafts reads them: of the tokens that a step has computed, and of those it has missed. They are written in
every step, which takes a copy; all that a head computes is computed only where drafts are wanted.
"""

import torch
from torch import Tensor

from quire.config.resolved import KVLayout
from quire.kvcache.storage import KVStorage


class Features:
    """Of one worker."""

    def __init__(self, layout: KVLayout, device: torch.device) -> None:
        self.storage = KVStorage(layout, getattr(torch, layout.dtype), device)
        (plane,), _ = self.storage.layer(0)
        self._by_slot = plane.view(-1, plane.shape[-1])

    def write(self, slots: Tensor, values: Tensor) -> None:
        """[tokens] slots, and [tokens, size]."""
        self._by_slot.index_copy_(0, slots, values.to(self._by_slot.dtype))

    def read(self, slots: Tensor) -> Tensor:
        """[tokens, size]."""
        return self._by_slot.index_select(0, slots)
