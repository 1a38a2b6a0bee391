"""LoRA adapters on a GPU, in bfloat16: grouping, A and B for q, k and v of a layer of llama-8b's shape."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from quire.bench.kernels.gpu_timing import BEYOND_THE_CACHE, time_calls
from quire.bench.kernels.result import KernelResult
from quire.ops.functional import add_lora, group_adapters
from quire.ops.lora_tensors import PAGE_RANK, LoraMatrix

ROWS = (1, 16, 64, 256, 4096)
_PARTS, _COLUMNS = (4096, 1024, 1024), 4096
_ADAPTERS = 16
_RANKS = (16, 64)


def results(seconds: float) -> Iterator[KernelResult]:
    for rank in _RANKS:
        for rows in ROWS:
            yield _result(rows, rank)


def _result(rows: int, rank: int, device: str = "cuda") -> KernelResult:
    x = torch.randn(rows, _COLUMNS, device=device, dtype=torch.bfloat16)
    y = torch.randn(rows, sum(_PARTS), device=device, dtype=torch.bfloat16)
    slots = (torch.arange(rows, device=device) % _ADAPTERS).int()
    used = min(rows, _ADAPTERS)
    bytes_each = 2 * rank * (len(_PARTS) * _COLUMNS + sum(_PARTS))
    copies = max(1, BEYOND_THE_CACHE // (used * bytes_each))
    calls = [partial(_layer, y, x, _matrix(rank, device), slots) for _ in range(copies)]
    return KernelResult(
        op="add_lora",
        case=f"qkv of llama-8b, {rows} rows, {used} adapters of rank {rank}",
        seconds=time_calls(calls),
        bytes=float(used * bytes_each + x.nbytes + 2 * y.nbytes),
        operations=2.0 * rows * rank * (len(_PARTS) * _COLUMNS + sum(_PARTS)),
    )


def _layer(y: Tensor, x: Tensor, matrix: LoraMatrix, slots: Tensor) -> Tensor:
    return add_lora(y, x, matrix, group_adapters(slots, _ADAPTERS))


def _matrix(rank: int, device: str) -> LoraMatrix:
    each = rank // PAGE_RANK
    pages = torch.arange(_ADAPTERS * each, dtype=torch.int32, device=device).view(_ADAPTERS, each)
    count = pages.numel()
    down = torch.randn(count, 1, len(_PARTS), _COLUMNS, PAGE_RANK, device=device, dtype=torch.bfloat16)
    up = torch.randn(count, 1, PAGE_RANK + 1, sum(_PARTS), device=device, dtype=torch.bfloat16)
    counts = torch.full((_ADAPTERS,), each, dtype=torch.int32, device=device)
    return LoraMatrix(down, up, _PARTS, pages, counts, torch.zeros_like(counts))
