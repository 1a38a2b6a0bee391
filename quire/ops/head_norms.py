"""HeadNorms: the norms that some families put on every head of queries and keys."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Each head becomes `head / rms(head) * (weight + offset)`."""

    query: Tensor  # [head_dim]
    key: Tensor  # [head_dim]
    eps: float
    offset: float
