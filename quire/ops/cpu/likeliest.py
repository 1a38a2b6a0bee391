"""likeliest on the native core's threads."""

import torch
from torch import Tensor

from quire.ops.cpu.machine import machine
from quire.ops.reference import likeliest as reference


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    found = machine()
    if found is None or logits.dtype != torch.float32 or not logits.is_contiguous():
        return reference.likeliest(logits)
    rows, columns = logits.shape
    tokens, invalid = torch.empty(rows, dtype=torch.int64), torch.empty(rows, dtype=torch.bool)
    found.likeliest(logits.data_ptr(), rows, columns, tokens.data_ptr(), invalid.data_ptr())
    return tokens, invalid
