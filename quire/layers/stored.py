"""StoredTensor: one tensor of a checkpoint as it lies in the file."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Memory-mapped: nothing is read before it is used."""

    name: str
    kind: str
    """A torch dtype's name (`bfloat16`), or a ggml type (`Q4_1`)."""
    shape: tuple[int, ...]
    """What it means, row-major; for a quantized tensor not the shape of `data`."""
    data: Tensor
    """Of that dtype and shape; for a quantized tensor uint8 [rows, bytes per row]."""

    @property
    def is_quantized(self) -> bool:
        return tuple(self.data.shape) != self.shape
