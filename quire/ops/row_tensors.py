"""RowTensors: a tensor of its own size for each of those rows that need one, and where it lies on the device.

Kernels find a row's tensor by its address, so one CUDA graph serves rows that have one and rows that have none, however
large it is, and nothing is padded to the longest.
"""

import torch
from torch import Tensor


class RowTensors:
    """Of rows 0 to `max_rows` - 1; behind them lies the spare row that fills up batches, which never has one."""

    def __init__(self, max_rows: int, device: torch.device) -> None:
        self.device = device
        self.addresses = torch.zeros(max_rows + 1, dtype=torch.int64, device=device)
        """By row; 0 where there is none."""
        self._tensors: dict[int, Tensor] = {}

    def __len__(self) -> int:
        """How many rows have one."""
        return len(self._tensors)

    def get(self, row: int) -> Tensor | None:
        return self._tensors.get(row)

    def put(self, row: int, tensor: Tensor) -> None:
        """The row has this contiguous tensor from now on, instead of the one it had."""
        assert tensor.is_contiguous(), f"the strides are {tensor.stride()}"
        self._tensors[row] = tensor
        self.addresses[row].fill_(tensor.data_ptr())  # an assignment would wait for the device

    def drop(self, row: int) -> None:
        """Nothing happens where the row has none."""
        # Steps that still run may read it: its memory is only given to work that comes after them.
        if self._tensors.pop(row, None) is not None:
            self.addresses[row].zero_()
