"""TokenEmbedding: what enters a model's first layer: words, and what its family adds to them."""

import torch
from torch import Tensor, nn

from quire.layers.batch import Batch
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.layers.vocabulary_share import VocabularyShare
from quire.ops.lora_tensors import AdapterRows
from quire.spec.matrix import MatrixSpec
from quire.spec.model import EmbeddingSpec


class TokenEmbedding(nn.Module):
    """Words, learned positions, types of tokens, a norm: as far as the family has them."""

    def __init__(self, spec: EmbeddingSpec, policy: WeightPolicy) -> None:
        super().__init__()

        def table(matrix: MatrixSpec | None) -> Embedding | None:
            return None if matrix is None else Embedding(matrix, policy)

        self._spec = spec
        self._words = Embedding(spec.words, policy) if policy.group is None else VocabularyShare(spec.words, policy)
        self._positions = table(spec.positions)
        self._types = table(spec.types)
        self._projection = None if spec.projection is None else Linear(spec.projection, policy)
        self._norm = None if spec.norm is None else Norm(spec.norm, policy)

    def forward(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """[tokens, hidden]."""
        x: Tensor = self._words(input_ids, batch.adapters)
        if self._spec.scale is not None:
            # rounded to the model's dtype first, as the checkpoints were trained
            x = x * torch.tensor(self._spec.scale, dtype=x.dtype)
        if batch.embeddings is not None:
            x = x.index_copy(0, batch.embeddings.places, batch.embeddings.values.to(x.dtype))
        if self._projection is not None:
            x = self._projection(x)
        if self._positions is not None:
            x = x + self._positions(positions + self._spec.first_position)
        if self._types is not None:
            x = x + self._types(torch.zeros_like(input_ids) if batch.types is None else batch.types)
        if self._norm is None:
            return x
        normed: Tensor = self._norm(x)
        return normed

    @property
    def words(self) -> Embedding:
        """What is looked up in: [tokens, size], without a scale or anything that is added."""
        return self._words

    @property
    def words_alone(self) -> Embedding | None:
        """The words, where nothing but their scale is added to them; else None."""
        others = (self._projection, self._positions, self._types, self._norm)
        return self._words if all(other is None for other in others) else None

    def project(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """By the transpose of the words: a tied output head."""
        return self._words.project(x, adapters)
