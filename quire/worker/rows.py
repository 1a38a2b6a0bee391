"""Rows: what the device knows about each running sequence, at a place that stays the same while it runs."""

import torch

from quire.core.plan import Admission, TableDelta
from quire.ops.step_tensors import RowStates


class Rows:
    """One row a sequence: its tokens, how many of them are computed, and its block tables."""

    def __init__(self, count: int, max_len: int, block_size: int, num_groups: int, device: torch.device) -> None:
        self._device = device
        # lookahead may reach a block past the longest sequence
        most_blocks = -(-max_len // block_size) + 2
        self.states = RowStates(
            tokens=torch.zeros((count, max_len + 1), dtype=torch.int32, device=device),
            num_computed=torch.zeros(count, dtype=torch.int64, device=device),
            lengths_for_angles=torch.zeros(count, dtype=torch.int64, device=device),
            tables=[torch.zeros((count, most_blocks), dtype=torch.int32, device=device) for _ in range(num_groups)],
        )

    def admit(self, admission: Admission) -> None:
        """Fill a row from scratch."""
        row, tokens = admission.row, admission.tokens
        self.states.tokens[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32, device=self._device)
        self.states.num_computed[row] = admission.num_computed
        self.states.lengths_for_angles[row] = admission.length_for_angles
        self.change(TableDelta(row, 0, admission.tables))

    def change(self, delta: TableDelta) -> None:
        """Apply new blocks of a row."""
        for table, blocks in zip(self.states.tables, delta.tables, strict=True):
            end = delta.start + len(blocks)
            table[delta.row, delta.start : end] = torch.tensor(blocks, dtype=torch.int32, device=self._device)
