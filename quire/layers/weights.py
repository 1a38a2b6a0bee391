"""How weights get from a checkpoint into layers: a layer says which tensors it expects and takes each as it comes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from quire.layers.stored import StoredTensor
from quire.ops.cpu.matrix import StoredRows
from quire.ops.reference.gguf.dequantize import dequantize

if TYPE_CHECKING:
    from quire.ops.cpu.packing import Packing


@dataclass(frozen=True, slots=True)
class Wanted:
    """A tensor that a layer takes."""

    shape: tuple[int, ...]
    """As checkpoints store it."""
    take: Callable[[StoredTensor], None]
    """Called with a tensor of that shape."""


Expected = Iterator[tuple[str, Wanted]]
"""By name."""

_HELD_AS_STORED = {torch.float32, torch.float16, torch.bfloat16}


@dataclass(frozen=True, slots=True)
class WeightPolicy:
    """In which numbers weights are held."""

    dtype: torch.dtype
    device: torch.device
    keep_quantized: bool = False
    """Hold quantized tensors as they are stored; otherwise they are expanded to `dtype` once, when they are loaded."""
    offloaded: frozenset[int] = frozenset()
    """Layers whose weights stay in host memory."""
    packing: "Packing | None" = None
    """Packs every matrix for the native CPU core, in its own numbers or, where they are not kept, in float32."""

    def of_layer(self, layer: int) -> "WeightPolicy":
        """Where and how one layer's weights are held."""
        return replace(self, device=torch.device("cpu")) if layer in self.offloaded else self

    def place(self, values: Tensor) -> Tensor:
        """A tensor where it is to be held; what waits in host memory for a GPU is pinned, so that it copies fast."""
        placed = values.to(self.device)
        return (
            placed.pin_memory()
            if self.offloaded and self.device.type == "cpu" and torch.cuda.is_available()
            else placed
        )


def stored_rows(stored: StoredTensor, policy: WeightPolicy, *, transposed: bool = False) -> StoredRows:
    """The tensor as the native core packs it."""
    if stored.is_quantized and policy.keep_quantized and not transposed:
        return StoredRows(stored.kind, stored.data, stored.shape[0])
    keep = not stored.is_quantized and policy.keep_quantized and stored.data.dtype in _HELD_AS_STORED
    values = stored.data if keep else dense(stored, torch.float32)
    values = values.t() if transposed else values
    return StoredRows(str(values.dtype).removeprefix("torch."), values, values.shape[0])


def dense(stored: StoredTensor, dtype: torch.dtype) -> Tensor:
    """The tensor's values in `dtype`."""
    if stored.is_quantized:
        return dequantize(stored.data, stored.kind, dtype).view(stored.shape)
    return stored.data.to(dtype)
