"""VocabularyShare: the words of one rank; a token's vector comes from the rank that has its word."""

import torch
from torch import Tensor

from quire.layers.embedding import Embedding
from quire.layers.policy import WeightPolicy
from quire.ops.lora_tensors import AdapterRows
from quire.spec.matrix import MatrixSpec


class VocabularyShare(Embedding):
    """An embedding of which every rank has a run of rows. As a head it gives the logits of these alone."""

    def __init__(self, matrix: MatrixSpec, policy: WeightPolicy) -> None:
        super().__init__(matrix, policy)
        assert policy.group is not None
        share = matrix.parts[0].share
        self._group = policy.group
        (self._taken,) = (range(matrix.rows),) if share is None else share.ranges

    def forward(self, ids: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        assert self.lora is None, "adapters of words are for models on one device"
        place = ids - self._taken.start
        is_here = (place >= 0) & (place < len(self._taken))
        found = super().forward(torch.where(is_here, place, 0))
        return self._group.all_reduce(torch.where(is_here.unsqueeze(-1), found, 0))
