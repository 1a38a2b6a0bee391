"""Vocabulary-wide rows on the device, for only those sequences that need one.

Sequences without one share slot 0, which holds the neutral value and is never written, so one gather serves any
batch. The pool doubles when it is full and goes back to nothing when nobody uses it.
"""

import torch
from torch import Tensor

NEUTRAL_SLOT = 0


class SlotPool:
    """`table` [slots, width] and, by row, the slot a sequence uses. `table` is another tensor after growing."""

    def __init__(self, max_rows: int, width: int, dtype: torch.dtype, neutral: float, device: torch.device) -> None:
        self._max_rows = max_rows
        self._neutral = neutral
        self._slot_of: dict[int, int] = {}
        self._free: list[int] = []
        self.table = torch.full((1, width), neutral, dtype=dtype, device=device)
        self.slots = torch.full((max_rows,), NEUTRAL_SLOT, dtype=torch.int64, device=device)

    @property
    def is_empty(self) -> bool:
        return not self._slot_of

    def take(self, row: int) -> Tensor:
        """A neutral slot for a row that has none: [width], to be filled in place before the next take."""
        assert row not in self._slot_of, f"row {row} already has a slot"
        if not self._free:
            self._grow()
        slot = self._slot_of[row] = self._free.pop()
        self.slots[row].fill_(slot)  # an assignment would wait for the device
        return self.table[slot].fill_(self._neutral)

    def give_back(self, row: int) -> None:
        """Nothing happens where the row has no slot."""
        slot = self._slot_of.pop(row, None)
        if slot is None:
            return
        self.slots[row].fill_(NEUTRAL_SLOT)
        self._free.append(slot)
        if self.is_empty:
            self._free = []
            self.table = self.table[:1].clone()

    def _grow(self) -> None:
        size = len(self.table)
        added = min(size, self._max_rows + 1 - size)
        assert added > 0, f"more than {self._max_rows} rows use the pool"
        more = self.table.new_full((added, self.table.shape[1]), self._neutral)
        self.table = torch.cat((self.table, more))
        self._free = list(range(size + added - 1, size - 1, -1))
