"""JointEmbedder: vectors of texts and of images in one space."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from quire.core.media import MediaItem
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.models.vision_tower import VisionTower
from quire.spec.joint import AttentionPoolSpec, JointSpec

_AT_ONCE = 16
"""Images, which bounds what a tower holds between its layers."""


class JointEmbedder(nn.Module):
    """What CLIP and SigLIP have behind their two towers."""

    def __init__(self, spec: JointSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._text = Linear(spec.text, policy)
        self._tower = VisionTower(spec.tower, policy)
        self._pool = None if spec.pool is None else _AttentionPool(spec.pool, policy)

    def of_texts(self, hidden: Tensor) -> Tensor:
        """Of hidden states, each by itself."""
        vectors: Tensor = self._text(hidden)
        return vectors

    def of_images(self, items: Sequence[MediaItem]) -> Tensor:
        """[images, size]."""
        parts = [items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE)]
        return torch.cat([self._vectors(part) for part in parts])

    def _vectors(self, items: Sequence[MediaItem]) -> Tensor:
        states = self._tower.states(items)
        if self._pool is None:
            return self._tower.project(states[:, 0])
        mixed, normed = self._pool(states)
        vectors: Tensor = mixed + self._tower.project(normed)
        return vectors


class _AttentionPool(nn.Module):
    """What a learned query takes of all patches, and that normed."""

    def __init__(self, spec: AttentionPoolSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._num_heads = spec.num_heads
        self._probe = Embedding(spec.probe, policy)
        self._qkv = Linear(spec.qkv, policy)
        self._out = Linear(spec.out, policy)
        self._norm = Norm(spec.norm, policy)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """states: [images, patches, hidden]; both [images, hidden]."""
        count, _, hidden = states.shape
        probe = self._probe(torch.zeros(1, dtype=torch.int64, device=states.device))
        query = self._qkv(probe)[:, :hidden].expand(count, 1, hidden)
        _, keys, values = self._qkv(states).chunk(3, dim=-1)
        heads = self._heads(query), self._heads(keys), self._heads(values)
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        output: Tensor = self._out(mixed.transpose(1, 2).reshape(count, hidden))
        return output, self._norm(output)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self._num_heads, -1).transpose(1, 2)
