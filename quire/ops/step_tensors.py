"""The integers around a step: what is known about each running sequence, and what a forward reads of it."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from quire.ops.cpu import native

if TYPE_CHECKING:
    from quire.ops.cpu import _core


@dataclass(frozen=True, eq=False)  # no slots, for what is cached
class RowStates:
    """What the device knows about each running sequence, at its row. All contiguous."""

    tokens: Tensor  # int32 [rows, most tokens]
    num_computed: Tensor  # int64 [rows]
    lengths_for_angles: Tensor  # int64 [rows]
    tables: list[Tensor]  # by KV group: int32 [rows, most blocks], of the same shape

    @cached_property
    def core(self) -> "_core.RowStates | None":
        """The same memory as the native core knows it; None without one. On CPUs only."""
        core = native.load()
        if core is None:
            return None
        states: _core.RowStates = core.RowStates(
            num_rows=self.tokens.shape[0],
            tokens=self.tokens.data_ptr(),
            row_tokens=self.tokens.shape[1],
            num_computed=self.num_computed.data_ptr(),
            lengths_for_angles=self.lengths_for_angles.data_ptr(),
            tables=[table.data_ptr() for table in self.tables],
            row_blocks=self.tables[0].shape[1],
        )
        return states


@dataclass(frozen=True, slots=True)
class StepTensors:
    """Int64 but for the tables. Sequences lie one after the other."""

    rows: Tensor  # [sequences]
    input_ids: Tensor  # [tokens]
    positions: Tensor  # [tokens]
    lengths_for_angles: Tensor  # [tokens]
    query_starts: Tensor  # [sequences + 1]
    lengths: Tensor  # [sequences]: tokens in the cache once the step has written its own
    slots: list[Tensor]  # by KV group: [tokens]
    tables: list[Tensor]  # by KV group: int32 [sequences, max_blocks]


@dataclass(frozen=True, slots=True)
class PrefixTiles:
    """Which sequences of a decode step attend together to a prefix that they have in the same blocks. All int32."""

    members: Tensor  # [tiles, most members]: sequences; -1 where there are fewer
    lengths: Tensor  # [tiles]: positions that the members share, before the last of each; 0: there is no such tile
    shared: Tensor  # [sequences]: positions that each attends to with its tile
