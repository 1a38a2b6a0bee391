"""RelativeBias: what MPNet adds to scores by how far two tokens are apart, far ones in buckets."""

import math

import torch
from torch import Tensor, nn

from quire.layers.embedding import Embedding
from quire.layers.policy import WeightPolicy
from quire.spec.model import RelativeBiasSpec


class RelativeBias(nn.Module):
    """A table [buckets, heads]; half of the buckets are for tokens before, half for those after."""

    def __init__(self, spec: RelativeBiasSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._table = Embedding(spec.table, policy)
        self._buckets = spec.table.rows
        self._max_distance = spec.max_distance

    def forward(self, lengths: Tensor) -> Tensor:
        """[heads, longest, longest] for sequences of these lengths."""
        positions = torch.arange(int(lengths.max()), device=lengths.device)
        buckets = self._bucket(positions.unsqueeze(1) - positions)
        bias: Tensor = self._table(buckets).permute(2, 0, 1)
        return bias

    def _bucket(self, back: Tensor) -> Tensor:
        """`back`: how many positions a key lies before its query."""
        half = self._buckets // 2
        near = half // 2
        distance = back.abs()
        share = torch.log(distance.float() / near) / math.log(self._max_distance / near)
        far = (near + (share * (half - near)).long()).clamp(max=half - 1)
        return torch.where(back < 0, half, 0) + torch.where(distance < near, distance, far)
