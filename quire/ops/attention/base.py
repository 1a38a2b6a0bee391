"""AttentionBackend: another library's way to attend over the paged cache, beside quire's own kernels.

A backend takes the steps in which some sequence has several new tokens. Decodes stay with the kernel that reads all it
needs from the device, so that their steps can be captured in graphs.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Attend(Protocol):
    """As `quire.ops.functional.paged_attention`."""

    def __call__(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        tables: Tensor,
        query_starts: Tensor,
        lengths: Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What a model asks of attention, in all of its layers."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    cache_dtype: torch.dtype
    scale: float
    ways: tuple[tuple[int | None, float | None], ...] = ((None, None),)
    """Windows and caps of its layers, each pair once."""


class AttentionBackend(ABC):
    """Made once a worker, for the shape that its `problem` found none with; may keep scratch memory."""

    @staticmethod
    @abstractmethod
    def problem(shape: AttentionShape) -> str | None:
        """Why it cannot serve this model and what to change, or None. Asked before anything is imported."""

    @abstractmethod
    def __init__(self, shape: AttentionShape, device: torch.device) -> None:
        """Raises an ImportError where its library is not installed."""

    @abstractmethod
    def step(self, counts: Sequence[int], lengths: Sequence[int]) -> Attend:
        """What attends in all layers of a step, of which the host knows how many new tokens each sequence has, and how
        many in all with those. Valid until the next call.
        """


def dtype_problem(shape: AttentionShape) -> str | None:
    """What backends have in common: numbers of 16 bits, the same in the cache as in the query."""
    half = (torch.float16, torch.bfloat16)
    if shape.dtype not in half:
        name = str(shape.dtype).removeprefix("torch.")
        return f"it computes in float16 and bfloat16, not {name}; use --dtype bfloat16"
    if shape.cache_dtype != shape.dtype:
        name = str(shape.cache_dtype).removeprefix("torch.")
        return f"it reads a cache of the model's own numbers, not {name}; leave --kv-cache-dtype out"
    return None
