"""EncoderCache: what an encoder made of media, by content: on the device as long as there is room, then in host memory.

An entry that is gone is encoded again, so nothing needs to be kept for a prompt that is still being computed.
"""

from collections import OrderedDict

import torch
from torch import Tensor


class EncoderCache:
    """Two tiers of embeddings, each with the most recently used last."""

    def __init__(self, device: torch.device, device_tokens: int, host_tokens: int) -> None:
        """Room in embeddings. A CPU has one tier of both sizes together."""
        self._device = device
        on_cpu = device.type == "cpu"
        self._rooms = (device_tokens + host_tokens, 0) if on_cpu else (device_tokens, host_tokens)
        self._tiers: tuple[OrderedDict[bytes, Tensor], ...] = (OrderedDict(), OrderedDict())
        self.num_encoded = 0
        """Items that were put in, each after it was encoded."""

    def get(self, digest: bytes) -> Tensor | None:
        """Embeddings on the device; None where they are not kept."""
        near, far = self._tiers
        found = near.get(digest)
        if found is not None:
            near.move_to_end(digest)
            return found
        found = far.pop(digest, None)
        if found is None:
            return None
        found = found.to(self._device, non_blocking=True)
        self._keep(digest, found)
        return found

    def put(self, digest: bytes, embeddings: Tensor) -> None:
        self.num_encoded += 1
        self._keep(digest, embeddings)

    def clear(self) -> None:
        for tier in self._tiers:
            tier.clear()

    def _keep(self, digest: bytes, embeddings: Tensor) -> None:
        near, far = self._tiers
        near[digest] = embeddings
        while _tokens(near) > self._rooms[0] and len(near) > 1:
            oldest, moved = near.popitem(last=False)
            if self._rooms[1]:
                far[oldest] = moved.to("cpu", copy=True)
        while _tokens(far) > self._rooms[1]:
            far.popitem(last=False)


def _tokens(tier: "OrderedDict[bytes, Tensor]") -> int:
    return sum(len(embeddings) for embeddings in tier.values())
