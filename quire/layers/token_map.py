"""TokenMap: from the tokens that a head can say to those of the vocabulary it drafts in."""

import torch
from torch import Tensor, nn

from quire.layers.policy import WeightPolicy
from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, ExpectedTensors
from quire.spec.tensor import TensorSpec


class TokenMap(nn.Module):
    """A checkpoint holds by how much the numbers of tokens differ; here are the numbers themselves."""

    ids: Tensor

    def __init__(self, spec: TensorSpec, vocab_size: int, policy: WeightPolicy) -> None:
        super().__init__()
        self._spec = spec
        self._vocab_size = vocab_size
        self.register_buffer("ids", torch.arange(spec.shape[0], device=policy.device), persistent=False)

    def expected(self) -> ExpectedTensors:
        yield Expected(self._spec.name, self._spec.shape, self._take)

    def spread(self, logits: Tensor) -> Tensor:
        """Logits of the whole vocabulary: what the head cannot say is never drawn."""
        whole = logits.new_full((logits.shape[0], self._vocab_size), -torch.inf)
        return whole.index_copy_(1, self.ids, logits)

    def _take(self, stored: StoredTensor) -> None:
        ids = torch.arange(self._spec.shape[0]) + stored.data.to(torch.int64)
        # one outside would be written beside the logits
        self.ids.copy_(ids.clamp(0, self._vocab_size - 1))
