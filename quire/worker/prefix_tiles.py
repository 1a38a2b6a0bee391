"""TilesOnDevice: which sequences of a batch attend to shared prefixes together, where captured steps read it.

Written only when a batch, or what its rows share, differs from the last one's.
"""

from collections.abc import Sequence

import torch

from quire.core.plan import StepPlan
from quire.ops.step_tensors import PrefixTiles
from quire.ops.upload import upload
from quire.worker.shared_prefix import SharedPrefixes, Tile, most_tiles


class TilesOnDevice:
    """Follows rows, and keeps the tiles of the last batch."""

    def __init__(
        self, prefixes: SharedPrefixes, most_rows: int, most_members: int, least_saved: int, device: torch.device
    ) -> None:
        """`least_saved`: positions that a batch need not read, for tiles to gain more than they cost."""
        self._prefixes = prefixes
        self._most_members = most_members
        self._least_saved = least_saved
        self._device = device
        count = most_tiles(most_rows, most_members)
        end_of_members, end = count * most_members, count * (most_members + 1)
        self._numbers = torch.zeros(end + most_rows, dtype=torch.int32, device=device)
        members = self._numbers[:end_of_members].view(count, most_members)
        self._all = PrefixTiles(members, self._numbers[end_of_members:end], self._numbers[end:])
        self._answer: tuple[Sequence[int], int, bool] | None = None
        """The rows last asked about, what was known then, and whether they have tiles."""

    def follow(self, plan: StepPlan) -> None:
        self._prefixes.follow(plan)

    def choose(self, rows: Sequence[int]) -> bool:
        """Whether a batch of these rows shares so much that it should attend in tiles; they are in place then."""
        version = self._prefixes.version
        if self._answer is None or self._answer[0] != rows or self._answer[1] != version:
            tiles = self._prefixes.tiles(rows, self._most_members)
            is_worth_it = bool(tiles) and sum(tile.saved for tile in tiles) >= self._least_saved
            if is_worth_it:
                self._write(tiles)
            self._answer = (rows, version, is_worth_it)
        return self._answer[2]

    def of(self, num_sequences: int) -> PrefixTiles:
        """As a step of so many sequences reads them, now and whenever it is repeated."""
        count = most_tiles(num_sequences, self._most_members)
        every = self._all
        return PrefixTiles(every.members[:count], every.lengths[:count], every.shared[:num_sequences])

    def clear(self) -> None:
        """No row is left, and steps of any size find no tiles."""
        self._prefixes.clear()
        self._numbers.zero_()
        self._answer = None

    def _write(self, tiles: Sequence[Tile]) -> None:
        count = len(self._all.lengths)
        members, lengths, shared = [], [0] * count, [0] * len(self._all.shared)
        for number, tile in enumerate(tiles):
            members += tile.members + [-1] * (self._most_members - len(tile.members))
            lengths[number] = tile.length
            for member in tile.members:
                shared[member] = tile.length
        members += [-1] * (count * self._most_members - len(members))
        self._numbers.copy_(upload([*members, *lengths, *shared], torch.int32, self._device))
