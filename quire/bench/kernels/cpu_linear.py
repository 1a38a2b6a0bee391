"""Matmuls of the native core with packed weights, by number of rows, beside torch's in float32."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from quire.bench.kernels.cpu_timing import median_time, time_calls
from quire.bench.kernels.result import KernelResult
from quire.ops.cpu.machine import machine
from quire.ops.cpu.matrix import StoredRows
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.cpu.packing import Packing

SHAPES = ((1536, 576), (49152, 576), (4096, 4096))
"""out × in: an MLP and the vocabulary of the default model; attention's output of llama-8b."""
ROWS = (1, 4, 16, 64, 512)
KINDS = ("bfloat16", "Q8_0", "Q4_0")
_BLOCK = 32
_BLOCK_BYTES = {"Q8_0": 34, "Q4_0": 18}
_BEYOND_THE_CACHE = 128_000_000
"""Bytes to rotate through while rows are few: more than the caches of most processors."""
_FEW_ROWS = 16


def results(seconds: float) -> Iterator[KernelResult]:
    for kind in KINDS:
        for out_size, in_size in SHAPES:
            yield from _of_shape(kind, out_size, in_size, seconds)


def _of_shape(kind: str, out_size: int, in_size: int, seconds: float) -> Iterator[KernelResult]:
    size = _weight_bytes(kind, out_size, in_size)
    copies = [_packed(kind, out_size, in_size) for _ in range(-(-_BEYOND_THE_CACHE // size))]
    dense = torch.randn(out_size, in_size)
    for rows in ROWS:
        x = torch.randn(rows, in_size)
        used = copies if rows <= _FEW_ROWS else copies[:1]
        calls: list[Callable[[], object]] = [partial(weight.multiply, x) for weight in used]
        yield KernelResult(
            op=f"linear {kind}",
            case=f"{rows} × {in_size} → {out_size}",
            seconds=time_calls(calls, seconds),
            bytes=size + 4 * rows * (in_size + out_size),
            operations=2.0 * rows * in_size * out_size,
            beside=median_time([partial(torch.nn.functional.linear, x, dense)], seconds / 2),
            beside_name="torch float32",
        )


def _packed(kind: str, out_size: int, in_size: int) -> PackedLinear:
    core = machine()
    assert core is not None  # the pool was started
    stored = StoredRows(kind, _stored(kind, out_size, in_size), out_size)
    return Packing(core).linear("weight", [stored], in_size, None)


def _stored(kind: str, out_size: int, in_size: int) -> Tensor:
    """Random weights as a checkpoint holds them; packed ones with scales of an eighth."""
    if kind not in _BLOCK_BYTES:
        return torch.randn(out_size, in_size).to(getattr(torch, kind))
    blocks = torch.randint(0, 256, (out_size, in_size // _BLOCK, _BLOCK_BYTES[kind]), dtype=torch.uint8)
    blocks[..., :2] = torch.tensor([0.125], dtype=torch.float16).view(torch.uint8)
    return blocks.view(out_size, -1)


def _weight_bytes(kind: str, out_size: int, in_size: int) -> int:
    if kind in _BLOCK_BYTES:
        return out_size * in_size // _BLOCK * _BLOCK_BYTES[kind]
    return out_size * in_size * 2
