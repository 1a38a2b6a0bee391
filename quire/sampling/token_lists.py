"""A short list of token ids per row, with a number each, to be added to those tokens' logits.

Lists are padded to the longest; padding adds 0 to token 0, which changes nothing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from quire.ops.upload import upload


class TokenLists:
    """`ids` int64 and `values` float32, both [max_rows, longest]; they are other tensors after growing."""

    def __init__(self, max_rows: int, device: torch.device) -> None:
        self._rows: set[int] = set()
        self.ids = torch.zeros((max_rows, 0), dtype=torch.int64, device=device)
        self.values = torch.zeros((max_rows, 0), device=device)

    @property
    def is_empty(self) -> bool:
        return not self._rows

    def put(self, row: int, ids: Sequence[int], values: Sequence[float]) -> None:
        """A row's list; its ids lie inside the vocabulary."""
        self._reach(len(ids))
        self._rows.add(row)
        self.ids[row, : len(ids)] = upload(ids, torch.int64, self.ids.device)
        self.values[row, : len(ids)] = upload(values, torch.float32, self.values.device)

    def drop(self, row: int) -> None:
        """Nothing happens where the row has no list."""
        if row not in self._rows:
            return
        self._rows.remove(row)
        self.ids[row].zero_()
        self.values[row].zero_()
        if self.is_empty:
            self.ids, self.values = self.ids[:, :0].clone(), self.values[:, :0].clone()

    def add_to(self, logits: Tensor, rows: Tensor, values: Tensor) -> None:
        """Add `values` [n, longest] to the listed tokens of `logits` [n, vocab], in place."""
        # What meets at one token is a single number and zeros, or -inf and zeros: the order of addition is free.
        logits.scatter_add_(1, self.ids[rows], values)

    def _reach(self, longest: int) -> None:
        missing = longest - self.ids.shape[1]
        if missing > 0:
            self.ids = torch.nn.functional.pad(self.ids, (0, missing))
            self.values = torch.nn.functional.pad(self.values, (0, missing))
