"""Rows: what the device knows about each running sequence, at a place that stays the same while it runs."""

from collections.abc import Sequence

import torch

from quire.core.plan import Admission, TableDelta
from quire.ops.step_tensors import RowStates
from quire.ops.upload import upload
from quire.worker.row_shape import RowShape


class Rows:
    """One row a sequence: its tokens, how many of them are computed, and its block tables.

    Behind them lies a spare one for places of a batch that nobody reads: an empty sequence, all in block 0.
    """

    def __init__(
        self,
        count: int,
        max_len: int,
        block_size: int,
        num_groups: int,
        device: torch.device,
        states: RowStates | None = None,
        lookahead: int = 0,
    ) -> None:
        """`states` are those of the same size that are there already; `lookahead` is as in `RowShape`."""
        self._device = device
        self.spare = count
        shape = RowShape(count, max_len, block_size, lookahead)
        self.states = states or RowStates(
            tokens=torch.zeros(shape.tokens, dtype=torch.int32, device=device),
            num_computed=torch.zeros(shape.rows, dtype=torch.int64, device=device),
            lengths_for_angles=torch.zeros(shape.rows, dtype=torch.int64, device=device),
            tables=[torch.zeros(shape.table, dtype=torch.int32, device=device) for _ in range(num_groups)],
        )

    def admit(self, admission: Admission) -> None:
        """Fill a row from scratch."""
        row, tokens = admission.row, admission.tokens
        self.states.tokens[row, : len(tokens)] = upload(tokens, torch.int32, self._device)
        # filled, since an assignment would wait for the device
        self.states.num_computed[row].fill_(admission.num_computed)
        self.states.lengths_for_angles[row].fill_(admission.length_for_angles)
        for table, blocks in zip(self.states.tables, admission.tables, strict=True):
            table[row, : len(blocks)] = upload(blocks, torch.int32, self._device)

    def change(self, deltas: Sequence[TableDelta]) -> None:
        """Apply new blocks of rows, all at once: on a GPU each write of its own would cost what a kernel costs."""
        for group, table in enumerate(self.states.tables):
            places: list[tuple[int, int, int]] = [
                (delta.row, delta.start + number, block)
                for delta in deltas
                for number, block in enumerate(delta.tables[group])
            ]
            if places:
                rows, positions, blocks = upload(places, torch.int64, self._device).unbind(1)
                table.index_put_((rows, positions), blocks.to(torch.int32))

    def rest_spare(self) -> None:
        """The spare row is empty again."""
        self.states.num_computed[self.spare :].zero_()
