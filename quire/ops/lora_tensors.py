"""What the LoRA ops read: the matrices of all adapters on a device, and which rows of a step use which."""

from dataclasses import dataclass

from torch import Tensor

PAGE_RANK = 16
"""Ranks of a page, as `spec/lora.py` lays it out."""


@dataclass(frozen=True, slots=True)
class LoraMatrix:
    """A and B of one matrix for all adapters, in pages of 16 ranks. Pages lie apart, each with all matrices in it."""

    down: Tensor  # [pages, experts, parts, columns, PAGE_RANK]
    up: Tensor  # [pages, experts, PAGE_RANK + 1, rows]: B, already scaled; then what DoRA multiplies outputs by
    parts: tuple[int, ...]
    """Rows of each part, in order: each has an A of its own."""
    pages: Tensor  # int32 [slots, most pages]: those of the adapter in each slot
    counts: Tensor  # int32 [slots]: how many of them hold something of this matrix; 0: the adapter leaves it alone
    is_dora: Tensor  # int32 [slots]: whether outputs are multiplied

    @property
    def experts(self) -> int:
        return self.down.shape[1]


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """The adapter of each row of activations, and rows grouped by it where kernels want that."""

    slots: Tensor  # int32 [rows]; -1: none
    num_slots: int
    experts: Tensor | None = None  # int64 [rows]: of pairs of a token and an expert, the expert
    num_experts: int = 1
    tiles: Tensor | None = None  # int32 [tiles * block_rows]: rows of one adapter (and expert); -1 where there is none
    block_rows: int = 0


@dataclass(frozen=True, slots=True)
class ExpertLora:
    """What adapters add to the experts of a layer."""

    up: LoraMatrix
    """Parts are the gate and the up of an expert."""
    down: LoraMatrix
    pairs: AdapterRows
    """Of each pair of a token and one of its experts, token by token."""
