"""Weight: a matrix in one storage format, and how to multiply by it."""

from abc import ABC, abstractmethod

from torch import Tensor


class Weight(ABC):
    """Rows are outputs. A new format is one file with one subclass."""

    @abstractmethod
    def apply(self, x: Tensor) -> Tensor:
        """x Wᵀ for x of [..., in_features]."""

    @abstractmethod
    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` themselves, dense: what an embedding looks up."""
