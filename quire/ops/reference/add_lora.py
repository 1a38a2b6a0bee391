"""add_lora: the definition. One adapter after the other, in float32."""

import torch
from torch import Tensor

from quire.ops.lora_tensors import PAGE_RANK, AdapterRows, LoraMatrix


def add_lora(y: Tensor, x: Tensor, matrix: LoraMatrix, rows: AdapterRows, bias: Tensor | None) -> Tensor:
    for slot, expert, places in _groups(rows):
        count = int(matrix.counts[slot])
        if not count:
            continue
        given = x.index_select(0, places).float()
        pages = matrix.pages[slot, :count].tolist()
        total = y.index_select(0, places).float()
        offset = 0.0 if bias is None else bias.float()
        is_dora = bool(matrix.is_dora[slot])
        if is_dora:
            total -= offset
        for page in pages:
            down, up = matrix.down[page, expert].float(), matrix.up[page, expert, :PAGE_RANK].float()
            first = 0
            for part, size in enumerate(matrix.parts):
                total[:, first : first + size] += given @ down[part] @ up[:, first : first + size]
                first += size
        if is_dora:
            total = total * matrix.up[pages[0], expert, PAGE_RANK].float() + offset
        y.index_copy_(0, places, total.to(y.dtype))
    return y


def _groups(rows: AdapterRows) -> list[tuple[int, int, Tensor]]:
    """Slot, expert and rows of each group that has an adapter."""
    keys = rows.slots.long()
    if rows.experts is not None:
        keys = torch.where(keys < 0, keys, keys * rows.num_experts + rows.experts)
    found = [key for key in torch.unique(keys).tolist() if key >= 0]
    return [(key // rows.num_experts, key % rows.num_experts, (keys == key).nonzero().flatten()) for key in found]
