"""Weights in any ggml type, held as they lie in the file and expanded for each use."""

from torch import Tensor
from torch.nn import functional

from quire.layers.quant.base import Weight
from quire.ops.reference.gguf.dequantize import dequantize


class GgufWeight(Weight):
    """uint8 [out, bytes per row]; the dtype of what it is applied to decides what it expands to."""

    data: Tensor

    def __init__(self, kind: str, data: Tensor, shape: tuple[int, int]) -> None:
        super().__init__()
        self._kind = kind
        self._shape = shape
        self.register_buffer("data", data, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, dequantize(self.data, self._kind, x.dtype).view(self._shape))

    def rows(self, ids: Tensor) -> Tensor:
        flat = dequantize(self.data[ids.flatten()], self._kind)
        return flat.view(*ids.shape, self._shape[1])
