"""LinearMethod and Weight: how matrices of one format are held, loaded and multiplied by."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from quire.layers.weights import ExpectedTensors
from quire.spec.matrix import MatrixSpec


class Weight(nn.Module, ABC):
    """One matrix and its bias, as a device holds them. What moves with the model is a buffer."""

    @abstractmethod
    def expected(self) -> ExpectedTensors:
        """The tensors that it takes from a checkpoint."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b for x of [..., columns]."""

    @abstractmethod
    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` themselves, dense: what an embedding looks up."""


class LinearMethod(ABC):
    """A weight format. A new one is one file with one subclass, and its Weight."""

    @abstractmethod
    def create(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> Weight:
        """An empty weight on `device`; `pinned` where it waits in host memory for another device."""
