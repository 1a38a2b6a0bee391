"""exp(logit - peak) in whole units of 2**-40, so that masses add up exactly and in any order.

Sums of floats depend on how a device splits them, and that depends on the batch; sums of integers do not. At most
2**22 weights of a row fit into int64 together.
"""

import torch
from torch import Tensor

UNITS = 2.0**40
"""What the most likely token weighs; a power of two, so scaling rounds nothing."""


def softmax_weights(logits: Tensor, peak: Tensor) -> Tensor:
    """int64 [n, m] for float32 `logits` [n, m] and each row's largest logit `peak` [n, 1]; rounded down."""
    return (torch.exp(logits - peak) * UNITS).to(torch.int64)
