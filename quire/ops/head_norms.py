"""HeadNorms: the norms that some families put on the heads of queries and keys."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """By `kind` a vector x becomes `x / rms(x)` or `(x - mean) / deviation`, times `weight + offset`.

    Vectors are single heads, or by `span` all heads of a token's queries together, and likewise those of its keys.
    """

    query: Tensor  # [head_dim], [heads, head_dim] where each head has its own, [heads * head_dim] for a span of all
    key: Tensor  # the same, of KV heads
    eps: float
    offset: float
    kind: Literal["rms", "layer"] = "rms"
    span: Literal["head", "all"] = "head"

    @property
    def is_plain(self) -> bool:
        """Whether each head is divided by its rms and all have the same weight, as in most families."""
        return self.kind == "rms" and self.span == "head" and self.query.dim() == self.key.dim() == 1
