"""Cases of paged attention: sequences over a cache whose blocks lie anywhere, and what they must read and compute."""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 16


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """Sequences of one length, each with so many new tokens at its end."""

    sequences: int
    length: int
    new: int
    heads: int
    kv_heads: int
    head_dim: int
    shared_prefix: int = 0
    """Positions that all begin with, in the same blocks."""
    fp8: bool = False
    """Whether keys and values are stored so."""

    def __str__(self) -> str:
        what = "decode" if self.new == 1 else f"prompt {self.new}"
        if self.shared_prefix:
            what += f" with a shared prefix of {self.shared_prefix}"
        shape = f"{self.sequences} × {self.length}, heads {self.heads}/{self.kv_heads} × {self.head_dim}"
        return f"{what}, {shape}{', KV in fp8' if self.fp8 else ''}"

    def bytes(self, element: int) -> float:
        """Keys and values once, queries and outputs."""
        positions = self.shared_prefix + self.sequences * (self.length - self.shared_prefix)
        cached = 2 * positions * self.kv_heads * self.head_dim
        rows = 2 * self.sequences * self.new * self.heads * self.head_dim
        return float((1 if self.fp8 else element) * cached + element * rows)

    def operations(self) -> float:
        """Both matmuls, of every new token with the positions it sees."""
        seen = self.new * (self.length - self.new) + self.new * (self.new + 1) / 2
        return 4.0 * self.sequences * seen * self.heads * self.head_dim


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """As `paged_attention` takes them."""

    query: Tensor
    keys: Tensor
    values: Tensor
    tables: Tensor
    starts: Tensor
    lengths: Tensor


def make_inputs(case: AttentionCase, dtype: torch.dtype, device: str) -> AttentionInputs:
    blocks_each = -(-case.length // BLOCK)
    total = case.sequences * blocks_each
    shape = (total + 1, BLOCK, case.kv_heads, case.head_dim)
    stored = torch.float8_e4m3fn if case.fp8 else dtype
    keys, values = (torch.randn(shape, dtype=torch.float32).to(stored).to(device) for _ in range(2))
    tables = (torch.randperm(total, dtype=torch.int32) + 1).view(case.sequences, blocks_each)
    tables[:, : case.shared_prefix // BLOCK] = tables[0, : case.shared_prefix // BLOCK].clone()
    query = torch.randn(case.sequences * case.new, case.heads, case.head_dim).to(dtype).to(device)
    starts = torch.arange(0, case.sequences * case.new + 1, case.new)
    lengths = torch.full((case.sequences,), case.length)
    return AttentionInputs(query, keys, values, tables.to(device), starts.to(device), lengths.to(device))
