"""TokenExchange: how tokens come to experts and back, where every rank attends to sequences of its own.

In few tokens all ranks' are gathered on each, which computes those that chose experts of its own; of the sums over
ranks, each takes its own tokens'. That is less to wait for than sending every token where it is wanted (all-to-all).
In many tokens, of which most would not be wanted on most ranks, it is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.parallel.group import Group

_FEW = 512
"""Tokens gathered on a rank, up to which all-to-all is not worth that hosts wait for the routing: a decode step."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Tokens of all ranks that this one computes for, and what it takes to bring the results back."""

    rows: Tensor
    """[tokens, hidden], in the order of all ranks' tokens."""
    places: Tensor
    """int64 [tokens]: which ones of all ranks' tokens they are."""
    senders: list[int]
    """By rank: how many of them it sent."""
    own: list[Tensor]
    """By rank: which of this rank's tokens it was sent."""


class TokenExchange:
    """One rank's view. In every layer with experts all ranks take part once, also one without tokens of its own."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._counts: Sequence[int] = [0] * group.size

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    def begin(self, counts: Sequence[int]) -> None:
        """A step follows in which each rank has so many tokens."""
        assert len(counts) == self._group.size, f"{len(counts)} counts of {self._group.size} ranks"
        self._counts = counts

    def sends(self, top_k: int) -> bool:
        """Whether tokens, of which each chose `top_k` experts, are better sent to these alone; all ranks say the same.

        A gather brings as many tokens of every rank as the one with most has. What is sent, were all experts equally
        busy: a token has none on a rank with a chance of (1 - 1 / ranks) ^ top_k.
        """
        gathered = self._group.size * max(self._counts)
        wanted = sum(self._counts) * (1 - (1 - 1 / self._group.size) ** top_k)
        return gathered > _FEW and wanted < 0.75 * gathered

    def gather(self, x: Tensor) -> Tensor:
        """[tokens of this rank, hidden] to [tokens of all, hidden]."""
        return self._group.gather_rows(x, self._counts)

    def give_back(self, partial: Tensor) -> Tensor:
        """What this rank's experts add to all tokens, to what all ranks' add to its own."""
        return self._group.sum_rows(partial, self._counts)

    def send(self, x: Tensor, ranks: Tensor) -> Sent:
        """Each of this rank's tokens to the ranks that are to compute for it. x: [tokens of this rank, hidden]; `ranks`
        is int64 [tokens of all, top_k], known to all.
        """
        wanted = torch.zeros((len(ranks), self.size), dtype=torch.bool, device=ranks.device).scatter_(1, ranks, True)
        of_each = torch.split(wanted, list(self._counts))
        flows: list[list[int]] = torch.stack([part.sum(0) for part in of_each]).tolist()  # here the host waits
        own = [part.nonzero()[:, 0] for part in of_each[self.rank].unbind(1)]
        senders = [flow[self.rank] for flow in flows]
        rows = self._group.exchange_rows(x[torch.cat(own)], flows[self.rank], senders)
        return Sent(rows, wanted[:, self.rank].nonzero()[:, 0], senders, own)

    def bring_back(self, partial: Tensor, sent: Sent) -> Tensor:
        """What this rank's experts add to the tokens it was sent, to what all ranks' add to its own."""
        given = [len(each) for each in sent.own]
        returned = torch.split(self._group.exchange_rows(partial, sent.senders, given), given)
        total = partial.new_zeros((self._counts[self.rank], partial.shape[1]), dtype=torch.float32)
        for tokens, part in zip(sent.own, returned, strict=True):  # a token is sent to a rank once
            total[tokens] += part
        return total.to(partial.dtype)

    def abandon(self) -> None:
        """As a Group's."""
        self._group.abandon()

    def close(self) -> None:
        """As a Group's."""
        self._group.close()
