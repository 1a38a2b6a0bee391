"""Weight: a matrix in one storage format, and how to multiply by it."""

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Weight(nn.Module, ABC):
    """Rows are outputs. A new format is one file with one subclass that keeps its tensors as buffers."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ for x of [..., in_features]."""

    @abstractmethod
    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` themselves, dense: what an embedding looks up."""
