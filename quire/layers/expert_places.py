"""ExpertPlaces: where among a rank's experts those are that tokens chose, and which of these tokens are the rank's."""

import torch
from torch import Tensor, nn

from quire.layers.weights import place
from quire.spec.expert_copies import HeldExperts, ranks_of_experts

_TURNS = 60
"""Tokens after which the turns begin anew: up to six ranks that have an expert get exactly as many tokens each."""
_DECODED = 1024
"""Tokens of a step whose turns are kept, so that decode steps do not compute them in every layer."""


class ExpertPlaces(nn.Module):
    """Of one layer. Steps look everything up on the device; that an expert comes or goes changes a table in place, so
    that graphs stay valid. The tables are no weights: they stay on the device while those sleep.
    """

    def __init__(self, held: HeldExperts, device: torch.device) -> None:
        super().__init__()
        self.held = held
        self.experts = list(held.experts)
        """By place; of one that is free, the expert that was there last."""
        self._turns = _TURNS if any(held.copies) else 1
        self.table = self._table().to(device)
        self._owners = self._owner_table().to(device)
        self._kept = self._offsets(_DECODED, device) if self._turns > 1 else None

    def forward(self, ids: Tensor) -> Tensor:
        """Of each token's experts, int64 [tokens, top_k], the place here, or -1: another rank computes it."""
        return self.table.take(self._in_turn(ids))

    def ranks(self, ids: Tensor) -> Tensor:
        """The same, but the rank that computes it."""
        return self._owners.take(self._in_turn(ids))

    def coming(self, held: HeldExperts) -> list[tuple[int, int]]:
        """Experts that are not here yet, in order, each with the place that it takes: one whose expert goes."""
        wanted = set(held.experts)
        free = [at for at, expert in enumerate(self.experts) if expert not in wanted]
        return list(zip(sorted(wanted - set(self.experts)), free, strict=False))

    def change(self, held: HeldExperts) -> None:
        """From the next step on; the weights of what comes are in their places."""
        for expert, at in self.coming(held):
            self.experts[at] = expert
        self.held = held
        # from pinned memory, since any other copy would wait for everything that a GPU has been given
        for table, made in ((self.table, self._table()), (self._owners, self._owner_table())):
            table.copy_(place(made, torch.device("cpu"), pinned=table.is_cuda), non_blocking=True)

    def _in_turn(self, ids: Tensor) -> Tensor:
        """Where in a table each token's experts stand."""
        if self._kept is None:
            return ids
        count = len(ids)
        return ids + (self._kept[:count] if count <= _DECODED else self._offsets(count, ids.device))

    def _table(self) -> Tensor:
        """[turns * experts]: a token with number t and an expert with number e are of the (t + e)-th rank in turn of
        those that have the expert; without the latter, single tokens would all be of the first rank.
        """
        turns = torch.tensor(self.held.turns())  # [experts, 2]
        places = torch.full((self.held.num_experts,), -1)
        here = set(self.held.experts)
        for at, expert in enumerate(self.experts):
            if expert in here:
                places[expert] = at
        return torch.where(self._numbers() % turns[:, 0] == turns[:, 1], places, -1).flatten()

    def _owner_table(self) -> Tensor:
        """[turns * experts]: the rank that computes it."""
        holders = ranks_of_experts(self.held.num_experts, self.held.copies)
        counts, most = torch.tensor([len(ranks) for ranks in holders]), max(map(len, holders))
        ranks = torch.tensor([[*each, *[-1] * (most - len(each))] for each in holders])
        return ranks.t().gather(0, self._numbers() % counts).flatten()

    def _numbers(self) -> Tensor:
        return torch.arange(self._turns)[:, None] + torch.arange(self.held.num_experts)

    def _offsets(self, count: int, device: torch.device) -> Tensor:
        """[tokens, 1]: where the turn of each token begins in the table."""
        return (torch.arange(count, device=device) % self._turns * self.held.num_experts)[:, None]
