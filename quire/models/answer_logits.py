"""AnswerLogits: how likely a causal LM is to answer a text by each of one or two words."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.policy import WeightPolicy
from quire.layers.pooling import pool
from quire.spec.model import ClassifierSpec


class AnswerLogits(nn.Module):
    """The rows of the output head that belong to the words, multiplied in float32: a score is a difference of logits
    that may be close."""

    def __init__(self, spec: ClassifierSpec, policy: WeightPolicy, words: Embedding | None) -> None:
        """`words` are the output head where it is tied."""
        super().__init__()
        self._pooling = spec.pooling
        self._rows = None if spec.out is None else Linear(spec.out, policy)
        self._words = words
        self.register_buffer("_ids", torch.tensor(spec.answer_ids, device=policy.device), persistent=False)

    def forward(self, hidden: Tensor, starts: Tensor) -> Tensor:
        """hidden: [tokens, size], starts: [sequences + 1]; gives [sequences, words] in float32."""
        rows, bias = self._head()
        return functional.linear(pool(hidden, starts, self._pooling), rows.float(), bias)

    def _head(self) -> tuple[Tensor, Tensor | None]:
        if self._rows is not None:
            return self._rows.values, None if self._rows.bias is None else self._rows.bias.float()
        assert self._words is not None, "a tied head is the words"
        return self._words(self._ids), None


def contrast(logits: Tensor) -> Tensor:
    """[sequences, words] to [sequences, 1]: the last word's logit, less the other's where there are two. Its sigmoid is
    the share of the last word between them."""
    return logits[:, -1:] - logits[:, :-1].sum(dim=1, keepdim=True)
