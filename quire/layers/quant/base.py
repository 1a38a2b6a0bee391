"""LinearMethod and Weight: how matrices of one format are held, loaded and multiplied by."""

from abc import ABC, abstractmethod
from functools import partial

import torch
from torch import Tensor, nn

from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected, ExpectedTensors, dense
from quire.ops.cpu.packed_heads import PackedUp
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.matrix import MatrixSpec


class Weight(nn.Module, ABC):
    """One matrix and its bias, as a device holds them. What moves with the model is a buffer."""

    bias: Tensor | None

    def __init__(self, matrix: MatrixSpec, dtype: torch.dtype, device: torch.device, pinned: bool = False) -> None:
        """`dtype` is that of the bias, and of what is held in plain numbers."""
        super().__init__()
        self._matrix = matrix
        self._dtype = dtype
        self._device = device
        self._pinned = pinned
        bias = torch.zeros(matrix.rows, dtype=dtype, device=device) if matrix.bias else None
        self.register_buffer("bias", bias, persistent=False)

    def expected(self) -> ExpectedTensors:
        """The tensors that it takes from a checkpoint."""
        first = 0
        for number, part in enumerate(self._matrix.parts):
            rows = slice(first, first + part.rows)
            yield from self._expected_part(number, rows)
            if self._matrix.bias and part.has_bias:
                bias = self._matrix.bias_of(part)
                yield Expected(bias.name, bias.shape, partial(self._take_bias, rows))
            first += part.rows

    def _expected_part(self, number: int, rows: slice) -> ExpectedTensors:
        weight = self._matrix.weight(self._matrix.parts[number])
        yield Expected(weight.name, weight.shape, partial(self._take, number, rows))

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b for x of [..., columns]."""

    @abstractmethod
    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` themselves, dense: what an embedding looks up."""

    def stack(self) -> Tensor | QuantizedMatrix | PackedLinear:
        """All of it, as ops multiply by the matrices of experts."""
        raise NotImplementedError(f"{type(self).__name__} holds no experts")  # abstract

    @abstractmethod
    def _take(self, number: int, rows: slice, stored: StoredTensor) -> None:
        """Part `number` of the matrix, which holds these rows of it."""

    def _take_bias(self, rows: slice, stored: StoredTensor) -> None:
        assert self.bias is not None
        self.bias[rows].copy_(dense(stored, self.bias.dtype))


class UpWeight(nn.Module, ABC):
    """What makes keys and values of latents, which latent attention takes apart instead of multiplying by it."""

    @abstractmethod
    def expected(self) -> ExpectedTensors:
        """The tensors that it takes from a checkpoint."""

    @property
    @abstractmethod
    def values(self) -> Tensor | PackedUp:
        """As the op takes it."""


class PlainUpWeight(UpWeight):
    """One plain matrix."""

    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self._weight = weight

    def expected(self) -> ExpectedTensors:
        return self._weight.expected()

    @property
    def values(self) -> Tensor:
        values = self._weight.stack()
        assert isinstance(values, Tensor), "its spec wants it plain"
        return values


class LinearMethod(ABC):
    """A weight format. A new one is one file with one subclass, and its Weight."""

    @abstractmethod
    def create(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> Weight:
        """An empty weight on `device`; `pinned` where it waits in host memory for another device."""

    def create_up(self, matrix: MatrixSpec, device: torch.device, *, pinned: bool = False) -> UpWeight:
        """An empty weight for what makes keys and values of latents."""
        return PlainUpWeight(self.create(matrix, device, pinned=pinned))
