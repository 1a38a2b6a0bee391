"""RowAdapters: the LoRA adapter of each running sequence, at its row."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quire.core.plan import Admission
from quire.layers.batch import Batch
from quire.ops.functional import group_adapters
from quire.ops.lora_tensors import AdapterRows

_NONE = -1


class RowAdapters:
    """The host knows whether a step needs adapters at all; the device knows which."""

    def __init__(self, num_rows: int, num_slots: int, device: torch.device) -> None:
        """`num_rows` with the spare one, which never has an adapter."""
        self._num_slots = num_slots
        self._slots = torch.full((num_rows,), _NONE, dtype=torch.int32, device=device)
        self._adapted: dict[int, int] = {}
        """Slots by row, of rows that have one."""

    def admit(self, admission: Admission) -> None:
        before = self._adapted.pop(admission.row, _NONE)
        if admission.adapter != _NONE:
            self._adapted[admission.row] = admission.adapter
        if admission.adapter != before:
            self._slots[admission.row].fill_(admission.adapter)  # filled, since an assignment would wait for the device

    def release(self, row: int) -> None:
        if self._adapted.pop(row, _NONE) != _NONE:
            self._slots[row].fill_(_NONE)

    def reset(self) -> None:
        """All rows are forgotten."""
        self._adapted.clear()
        self._slots.fill_(_NONE)

    def are_used_by(self, rows: Sequence[int]) -> bool:
        """Whether any of these rows has an adapter: otherwise the step is the same as without adapters."""
        return bool(self._adapted) and not self._adapted.keys().isdisjoint(rows)

    def of(self, rows: Tensor, count: int = 1) -> AdapterRows:
        """Of rows that compute so many tokens each. Nothing here depends on values, so a graph can hold it."""
        slots = self._slots[rows]
        return group_adapters(slots if count == 1 else slots.repeat_interleave(count), self._num_slots)

    def of_row(self, row: int, count: int) -> AdapterRows | None:
        """So many tokens of one row; None where it has no adapter."""
        if row not in self._adapted:
            return None
        return group_adapters(self._slots[row].expand(count), self._num_slots)

    def given_to(self, batch: Batch, rows: Tensor, sampled: Tensor | None) -> tuple[Batch, AdapterRows]:
        """A batch of these sequences with its adapters, and those of the tokens that are sampled from: where `sampled`
        says, or all."""
        slots, num_tokens = self._slots[rows], len(batch.slots[0])
        if num_tokens != len(rows):
            slots = slots.repeat_interleave(batch.query_starts.diff(), output_size=num_tokens)
        adapters = group_adapters(slots, self._num_slots)
        sampling = adapters if sampled is None else group_adapters(slots[sampled], self._num_slots)
        output = None if batch.output_rows is None else sampling
        return replace(batch, adapters=adapters, output_adapters=output), sampling
