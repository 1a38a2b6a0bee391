"""group_adapters on a GPU: tiles of rows that have the same adapter, made on the device."""

import torch
from torch import Tensor

from quire.ops.lora_tensors import AdapterRows
from quire.ops.triton.expert_tiles import expert_tiles

_FEW_ROWS = 1024
"""Up to here tiles of 16 rows leave fewer places empty than their weights cost to read again."""


def group_adapters(slots: Tensor, num_slots: int, experts: Tensor | None, num_experts: int) -> AdapterRows:
    block_rows = 16 if len(slots) <= _FEW_ROWS else 64
    groups = num_slots * num_experts
    keys = slots.long()
    if experts is not None:
        keys = keys * num_experts + experts
    # rows without an adapter are a group behind the others, whose tiles end at once
    keys = torch.where(slots < 0, groups, keys)
    tiles = expert_tiles(keys.view(-1, 1), groups + 1, block_rows)
    return AdapterRows(slots, num_slots, experts, num_experts, tiles, block_rows)
