"""Weights in the layouts of the native CPU core."""

from torch import Tensor

from quire.layers.quant.base import Weight
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.functional import packed_linear


class PackedWeight(Weight):
    """All parts of a layer's matrix together, its bias included."""

    def __init__(self, packed: PackedLinear) -> None:
        super().__init__()
        self._packed = packed

    def forward(self, x: Tensor) -> Tensor:
        return packed_linear(x, self._packed)

    def rows(self, ids: Tensor) -> Tensor:
        return self._packed.lookup(ids)
