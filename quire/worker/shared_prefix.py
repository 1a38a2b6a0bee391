"""SharedPrefixes: which running sequences have their first blocks in common, and which should read them together.

Plans tell it with the tables of the rows they admit. Rows stand in an order in which those that share more are closer
together: what any two of them share is then the least that neighbours between them share. Only admissions, releases and
copied blocks change it. Blocks that a growing sequence gets are new, so a decode costs nothing here.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from quire.core.plan import StepPlan
from quire.kvcache.blocks import NULL_BLOCK

GRANULE = 128
"""Positions that sequences share count in multiples of this: tiles of all attention kernels divide it."""
FEWEST = 8
"""Sequences that share a prefix, for it to be read once."""


class Tile(NamedTuple):
    """Sequences of a batch that attend together to a prefix that they share."""

    members: list[int]
    """Places in the batch."""
    length: int
    """Positions."""

    @property
    def saved(self) -> int:
        """Positions that are not read again."""
        return (len(self.members) - 1) * self.length


class _Prefix(NamedTuple):
    length: int
    first: int
    """The first of its sequences."""
    members: list[int]
    """Those that have no tile yet."""


class SharedPrefixes:
    """Follows the tables of rows in the KV groups that keep all tokens."""

    def __init__(self, groups: Sequence[int], block_size: int) -> None:
        self._groups = groups
        self._block_size = block_size
        self._tables: dict[int, list[list[int]]] = {}
        self._order: list[int] = []
        self._shared: list[int] = []
        """Blocks that each row of `_order` shares with the one before it."""
        self.version = 0
        """Grows with every change of what is shared."""

    def follow(self, plan: StepPlan) -> None:
        for row in (*plan.released, *(admission.row for admission in plan.admitted)):
            if row in self._tables:  # an error may have made the worker forget it, and an admission begins anew
                self._remove(row)
        for admission in plan.admitted:
            self._insert(admission.row, [list(admission.tables[group]) for group in self._groups])
        for delta in plan.table_deltas:
            tables = self._tables[delta.row]
            is_rewritten = delta.start < len(tables[0])
            if is_rewritten:
                self._remove(delta.row)
            for table, group in zip(tables, self._groups, strict=True):
                table[delta.start :] = delta.tables[group]
            if is_rewritten:
                self._insert(delta.row, tables)

    def clear(self) -> None:
        """No row is left."""
        self._tables, self._order, self._shared = {}, [], []
        self.version += 1

    def tiles(self, rows: Sequence[int], most: int) -> list[Tile]:
        """Of a batch of these rows, those that save most reads first, of at most so many sequences each."""
        if not any(self._shared):
            return []
        places = {row: place for place, row in enumerate(rows)}
        members, lengths, least = [], [], 0
        for row, shared in zip(self._order, self._shared, strict=True):
            least = min(least, shared)
            if row in places:
                members.append(places[row])
                lengths.append(least * self._block_size // GRANULE * GRANULE)
                least = sys.maxsize
        tiles = sorted(cut(lengths, most), key=lambda tile: tile.saved, reverse=True)[: most_tiles(len(rows), most)]
        return [Tile([members[number] for number in tile.members], tile.length) for tile in tiles]

    def _insert(self, row: int, tables: list[list[int]]) -> None:
        """After the last row that shares as much with it as any."""
        most, end = 0, len(self._order)
        following = None if tables[0][:1] == [NULL_BLOCK] else tables[0][:1]  # dummy sequences share nothing
        for place, shared in enumerate(self._shared):
            if shared < most:
                end = place
                break
            if shared > most:
                continue  # it shares with this one what it shares with the one before
            others = self._tables[self._order[place]]
            if others[0][most : most + 1] == following:
                most = _num_same(tables, others, most)
                following = tables[0][most : most + 1]
        self._order.insert(end, row)
        self._shared.insert(end, most)
        self._tables[row] = tables
        self.version += 1

    def _remove(self, row: int) -> None:
        place = self._order.index(row)
        shared = self._shared.pop(place)
        if place < len(self._shared):
            self._shared[place] = min(self._shared[place], shared)
        del self._order[place], self._tables[row]
        self.version += 1


def cut(lengths: Sequence[int], most: int) -> list[Tile]:
    """Tiles of sequences that each share so many positions with the one before; the first shares none.

    Sequences that share more than others of their prefix are tiles of their own where that saves more than their part
    of tiles with the others.
    """
    tiles: list[Tile] = []
    prefixes = [_Prefix(0, 0, [])]
    """Each is longer than the one before, and its sequences are the last of that one's."""
    for number, length in enumerate([*lengths, 0]):
        while prefixes[-1].length > length:
            ended, first, members = prefixes.pop()
            shorter = max(length, prefixes[-1].length)
            count = -(-len(members) // most)
            saved, saved_with_others = (len(members) - count) * ended, len(members) * (most - 1) * shorter // most
            if number - first >= FEWEST and saved > saved_with_others:
                size = -(-len(members) // count)
                parts = [members[start : start + size] for start in range(0, len(members), size)]
                tiles += [Tile(part, min(lengths[part[0] + 1 : part[-1] + 1], default=ended)) for part in parts]
                members = []
            if prefixes[-1].length < shorter:
                prefixes.append(_Prefix(shorter, first, members))
            else:
                prefixes[-1].members.extend(members)
        if prefixes[-1].length < length:
            prefixes.append(_Prefix(length, number - 1, [prefixes[-1].members.pop()]))
        prefixes[-1].members.append(number)
    return tiles


def most_tiles(num_sequences: int, most: int) -> int:
    """How many tiles a batch has room for: the full ones, and one more for each prefix of enough sequences."""
    return num_sequences // most + num_sequences // FEWEST


def _num_same(one: list[list[int]], other: list[list[int]], known: int) -> int:
    """How many first blocks two rows share in all groups; so many are known to be."""
    most = min(len(one[0]), len(other[0]))
    for mine, others in zip(one, other, strict=True):
        same = known
        while same + 64 <= most and mine[same : same + 64] == others[same : same + 64]:  # faster than one by one
            same += 64
        while same < most and mine[same] == others[same]:
            same += 1
        most = same
    return most
