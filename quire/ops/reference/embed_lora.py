"""embed_lora: the definition."""

import torch
from torch import Tensor

from quire.ops.lora_tensors import PAGE_RANK, AdapterRows, LoraMatrix


def embed_lora(x: Tensor, ids: Tensor, matrix: LoraMatrix, rows: AdapterRows) -> Tensor:
    for slot in torch.unique(rows.slots).tolist():
        count = 0 if slot < 0 else int(matrix.counts[slot])
        if not count:
            continue
        places = (rows.slots == slot).nonzero().flatten()
        total = x.index_select(0, places).float()
        for page in matrix.pages[slot, :count].tolist():
            looked_up = matrix.down[page, 0, 0].index_select(0, ids.index_select(0, places)).float()
            total += looked_up @ matrix.up[page, 0, :PAGE_RANK].float()
        x = x.index_copy(0, places, total.to(x.dtype))
    return x
