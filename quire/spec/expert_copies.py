"""Where copies of busy experts go, so that the ranks of a layer have about equally much to do. Plain numbers.

An expert's home is the rank that even shares give it to, and there it stays. Copies of it lie in spare places of other
ranks. Tokens that chose the expert take turns between the ranks that have it, so that each is computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quire.spec.share import even_share

Copies = tuple[tuple[int, ...], ...]
"""By rank: the experts that it has a copy of."""


@dataclass(frozen=True, slots=True)
class HeldExperts:
    """Those of a layer that one rank has, where they are spread over several."""

    rank: int
    num_experts: int
    """Of the layer."""
    copies: Copies
    """Of all ranks, since it takes all to know whose turn it is."""

    @property
    def home(self) -> range:
        """Those that are always here."""
        return even_share(self.num_experts, self.rank, len(self.copies))

    @property
    def experts(self) -> tuple[int, ...]:
        """All that are here, in order."""
        return tuple(sorted((*self.home, *self.copies[self.rank])))

    def turns(self) -> list[tuple[int, int]]:
        """By expert: how many ranks have it, and which of them this one is; -1: it is none of them."""
        holders = ranks_of_experts(self.num_experts, self.copies)
        return [(len(ranks), ranks.index(self.rank) if self.rank in ranks else -1) for ranks in holders]


def first_copies(num_experts: int, ranks: int, spare: int) -> Copies:
    """What `spare` places of each rank hold before any load is known: the experts that follow its own."""
    ends = [even_share(num_experts, rank, ranks).stop for rank in range(ranks)]
    return tuple(tuple(sorted((end + place) % num_experts for place in range(spare))) for end in ends)


def ranks_of_experts(num_experts: int, copies: Copies) -> list[list[int]]:
    """By expert: the ranks that have it, in order."""
    ranks = len(copies)
    holders = [[rank] for rank in range(ranks) for _ in even_share(num_experts, rank, ranks)]
    for rank, copied in enumerate(copies):
        for expert in copied:
            holders[expert].append(rank)
    return [sorted(each) for each in holders]


def rank_loads(load: Sequence[float], copies: Copies) -> list[float]:
    """Of each rank, where the tokens of an expert are shared evenly between the ranks that have it."""
    loads = [0.0] * len(copies)
    for tokens, holders in zip(load, ranks_of_experts(len(load), copies), strict=True):
        for rank in holders:
            loads[rank] += tokens / len(holders)
    return loads


def balanced_copies(load: Sequence[float], ranks: int, spare: int) -> Copies:
    """Which experts to copy, with `spare` places on each rank: `load` are the tokens that chose each expert.

    One copy after the other relieves the rank that has most to do: of the experts there, the one whose copy on the
    least busy rank with room leaves the busier of the two with least. Where no copy helps, places stay free.
    """
    none: Copies = ((),) * ranks
    holders, loads = ranks_of_experts(len(load), none), rank_loads(load, none)
    copies: list[list[int]] = [[] for _ in range(ranks)]
    while True:
        busiest = max(range(ranks), key=loads.__getitem__)
        best: tuple[float, int, int] | None = None
        for expert in (*even_share(len(load), busiest, ranks), *copies[busiest]):
            others = [rank for rank in range(ranks) if len(copies[rank]) < spare and rank not in holders[expert]]
            if not others:
                continue
            target, count = min(others, key=loads.__getitem__), len(holders[expert])
            given = load[expert] / (count + 1)
            peak = max(loads[target] + given, loads[busiest] - given / count)
            if peak < loads[busiest]:
                best = min(best or (peak, expert, target), (peak, expert, target))
        if best is None:
            return tuple(tuple(sorted(each)) for each in copies)
        _, expert, target = best
        given = load[expert] / (len(holders[expert]) + 1)
        for rank in holders[expert]:
            loads[rank] -= given / len(holders[expert])
        loads[target] += given
        holders[expert].append(target)
        copies[target].append(expert)


def imbalance(load: Sequence[float], copies: Copies) -> float:
    """What the busiest rank has to do, in what an average one has: 1 is even, and so is nothing."""
    loads = rank_loads(load, copies)
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0
