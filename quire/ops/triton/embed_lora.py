"""embed_lora on a GPU: A is looked up by token, page after page, and the rest is what `add_lora` does."""

import torch
from torch import Tensor

from quire.ops.lora_tensors import PAGE_RANK, AdapterRows, LoraMatrix
from quire.ops.triton.add_lora import expand


def embed_lora(x: Tensor, ids: Tensor, matrix: LoraMatrix, rows: AdapterRows) -> Tensor:
    pages = matrix.pages[rows.slots.clamp(min=0).long()].long()  # [rows, most pages]
    looked_up = matrix.down[pages, 0, 0, ids[:, None]].float()  # [rows, most pages, PAGE_RANK]
    inner = looked_up.view(1, len(x), 1, pages.shape[1] * PAGE_RANK)
    return expand(x, torch.nan_to_num(inner), matrix, rows, None)
