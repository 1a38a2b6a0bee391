"""Latent attention on a GPU, in bfloat16 and over latents in fp8: of one layer, from its projections to its output."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quire.bench.kernels.gpu_timing import time_calls
from quire.bench.kernels.result import KernelResult
from quire.core.pasts import Pasts
from quire.ops.functional import latent_attention, prepare_latent

_BLOCK = 16
_NOPE, _ROPE, _VALUE, _LATENT = 128, 64, 128, 512
"""DeepSeek's, of all sizes of model."""


@dataclass(frozen=True, slots=True)
class LatentCase:
    """Sequences of one length, each with so many new tokens at its end."""

    sequences: int
    length: int
    new: int
    heads: int
    fp8: bool = False

    def __str__(self) -> str:
        what = "decode" if self.new == 1 else "prompt" if self.new == self.length else f"chunk of {self.new}"
        return f"{what}, {self.sequences} × {self.length}, {self.heads} heads{', fp8' if self.fp8 else ''}"

    @property
    def is_fresh(self) -> bool:
        return self.new == self.length

    def bytes(self) -> float:
        """Latents once, `up` once, queries and outputs."""
        cached = self.sequences * self.length * (_LATENT + _ROPE) * (1 if self.fp8 else 2)
        up = self.heads * (_NOPE + _VALUE) * _LATENT
        rows = self.sequences * self.new * self.heads * (_NOPE + _ROPE + _VALUE)
        return float(cached + 2 * (up + rows))

    def operations(self) -> float:
        """Of the form that takes fewer: expanded for prompts without a past, absorbed for what looks back."""
        seen = self.new * (self.length - self.new) + self.new * (self.new + 1) / 2
        each = _NOPE + _ROPE + _VALUE if self.is_fresh else 2 * _LATENT + _ROPE
        moved = self.new * (_NOPE + _VALUE) * _LATENT
        return 2.0 * self.sequences * self.heads * (seen * each + moved)


_IN_BFLOAT16 = (
    *(LatentCase(sequences, 1024, 1, 16) for sequences in (1, 16, 64, 256)),
    LatentCase(64, 16384, 1, 16),
    LatentCase(64, 1024, 1, 128),
    LatentCase(4, 2048, 2048, 16),
    LatentCase(4, 4096, 2048, 16),
)
CASES = (*_IN_BFLOAT16, *(replace(case, fp8=True) for case in _IN_BFLOAT16))
"""Heads of DeepSeek-V2-Lite, and of V3."""


def results(seconds: float) -> Iterator[KernelResult]:
    """`seconds` is for CPUs: a graph's replays take as long as they take."""
    for case in CASES:
        layer = LatentLayer(case, "cuda")
        yield KernelResult("latent_attention", str(case), time_calls([layer.attend]), case.bytes(), case.operations())


class LatentLayer:
    """What a step of this case gives to one layer."""

    def __init__(self, case: LatentCase, device: str) -> None:
        self._case = case
        tokens, width = case.sequences * case.new, case.heads * (_NOPE + _ROPE)
        blocks_each = -(-case.length // _BLOCK)
        total = case.sequences * blocks_each

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, device=device).to(torch.bfloat16)

        self._projected = random(tokens, width + _LATENT + _ROPE)
        self._up = random(case.heads * (_NOPE + _VALUE), _LATENT) * 0.04
        self._weight = random(_LATENT)
        self._angles = tuple(torch.rand(2, tokens, _ROPE // 2, device=device))
        cache = torch.randn(total + 1, _BLOCK, _LATENT + _ROPE, device=device)
        self._cache = cache.to(torch.float8_e4m3fn if case.fp8 else torch.bfloat16)
        self._tables = (torch.randperm(total, dtype=torch.int32, device=device) + 1).view(case.sequences, blocks_each)
        positions = torch.arange(case.length - case.new, case.length, device=device)
        slots = self._tables.long()[:, positions // _BLOCK] * _BLOCK + positions % _BLOCK
        self._slots = slots.flatten()
        self._starts = torch.arange(0, tokens + 1, case.new, device=device)
        self._lengths = torch.full((case.sequences,), case.length, device=device)
        whole = (case.sequences, tokens)
        self._pasts = Pasts(0, 0, 0, 0) if case.is_fresh else Pasts(*whole, *whole)

    def attend(self) -> Tensor:
        heads, width = self._case.heads, self._case.heads * (_NOPE + _ROPE)
        cos, sin = self._angles
        query, latents = prepare_latent(
            self._projected[:, :width].view(-1, heads, _NOPE + _ROPE),
            self._projected[:, width:],
            self._weight,
            1e-6,
            (cos, sin),
            self._cache,
            self._slots,
        )
        return latent_attention(
            query,
            latents,
            self._up,
            self._cache,
            self._tables,
            self._starts,
            self._lengths,
            nope_dim=_NOPE,
            scale=(_NOPE + _ROPE) ** -0.5,
            pasts=self._pasts,
        )
