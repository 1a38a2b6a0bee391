"""Sampling of several ranks: the first draws, and all others take its tokens into their rows."""

import torch
from torch import Tensor

from quire.parallel.group import Group
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import SampledTokens, Sampler


class RankSampler:
    """In place of a Sampler, on every rank: none leaves before it has the tokens.

    Ranks might all come to the same tokens by themselves. But logits are whole on the first alone, others do not know
    what sequences ask of a draw, and a rank whose sums end in another digit would go on with another token.
    """

    def __init__(self, sampler: Sampler, group: Group) -> None:
        self._sampler = sampler
        self._group = group

    def sample(self, logits: Tensor, rows: Tensor, positions: Tensor, mode: SamplingMode) -> SampledTokens:
        """As Sampler's; on other ranks than the first, `logits` mean nothing and neither does anything but tokens."""
        if self._group.is_first:
            sampled = self._sampler.sample(logits, rows, positions, mode)
            self._group.broadcast(sampled.tokens.contiguous())
            return sampled
        tokens = self._group.broadcast(torch.empty(len(rows), dtype=torch.int64, device=rows.device))
        return SampledTokens(tokens, torch.zeros_like(tokens, dtype=torch.bool))

    def draw(self, logits: Tensor, rows: Tensor, positions: Tensor, mode: SamplingMode) -> tuple[Tensor, Tensor]:
        """As Sampler's: tokens that are drawn ahead, as drafts are, are the first rank's on all of them."""
        if self._group.is_first:
            tokens, invalid = self._sampler.draw(logits, rows, positions, mode)
            return self._group.broadcast(tokens.contiguous()), invalid
        tokens = self._group.broadcast(torch.empty(len(rows), dtype=torch.int64, device=rows.device))
        return tokens, torch.zeros_like(tokens, dtype=torch.bool)
