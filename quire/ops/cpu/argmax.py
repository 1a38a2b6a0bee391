"""argmax on the native core's threads."""

import torch
from torch import Tensor

from quire.ops.cpu.machine import machine
from quire.ops.reference import argmax as reference


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    found = machine()
    if found is None or logits.dtype != torch.float32 or not logits.is_contiguous():
        return reference.argmax(logits)
    rows, columns = logits.shape
    tokens, invalid = torch.empty(rows, dtype=torch.int64), torch.empty(rows, dtype=torch.bool)
    found.argmax(
        logits=logits.data_ptr(), rows=rows, columns=columns, tokens=tokens.data_ptr(), invalid=invalid.data_ptr()
    )
    return tokens, invalid
