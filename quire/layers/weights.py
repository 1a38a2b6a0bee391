"""How weights get from a checkpoint into layers: a layer says which tensors it expects and takes each as it comes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.layers.stored import StoredTensor
from quire.ops.reference.gguf.dequantize import dequantize


@dataclass(frozen=True, slots=True)
class Expected:
    """A tensor that a layer takes."""

    name: str
    """As the model's spec has it."""
    shape: tuple[int, ...]
    take: Callable[[StoredTensor], None]
    """Called with a tensor of that shape."""


ExpectedTensors = Iterator[Expected]


def dense(stored: StoredTensor, dtype: torch.dtype) -> Tensor:
    """The tensor's values in `dtype`."""
    if stored.is_quantized:
        return dequantize(stored.data, stored.kind, dtype).view(stored.shape)
    return stored.data.to(dtype)


def place(values: Tensor, device: torch.device, *, pinned: bool = False) -> Tensor:
    """A tensor where it is to be held; what waits in host memory for a GPU is pinned, so that it copies fast."""
    placed = values.to(device)
    return placed.pin_memory() if pinned and torch.cuda.is_available() else placed
