"""The integers of one step: what ops that read and write paged KV, and the model around them, go by."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class RowStates:
    """What the device knows about each running sequence, at its row. All contiguous."""

    tokens: Tensor  # int32 [rows, most tokens]
    num_computed: Tensor  # int64 [rows]
    lengths_for_angles: Tensor  # int64 [rows]
    tables: list[Tensor]  # by KV group: int32 [rows, most blocks]


@dataclass(frozen=True, slots=True)
class StepTensors:
    """Int64 but for the tables. Sequences lie one after the other."""

    input_ids: Tensor  # [tokens]
    positions: Tensor  # [tokens]
    lengths_for_angles: Tensor  # [tokens]
    query_starts: Tensor  # [sequences + 1]
    lengths: Tensor  # [sequences]: tokens in the cache once the step has written its own
    slots: list[Tensor]  # by KV group: [tokens]
    tables: list[Tensor]  # by KV group: int32 [sequences, max_blocks]
