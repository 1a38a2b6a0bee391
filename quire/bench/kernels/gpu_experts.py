"""Experts on a GPU, in bfloat16 or MXFP4: routing, grouping and the GEMMs together, of one layer of known models."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from quire.bench.kernels.gpu_timing import BEYOND_THE_CACHE, time_calls
from quire.bench.kernels.result import KernelResult
from quire.core.routing import Routing
from quire.ops.functional import Activation, experts_mlp, route_tokens
from quire.ops.quantized_matrix import QuantizedMatrix

TOKENS = (1, 4, 8, 32, 256, 4096)
_GROUP, _GROUP_BYTES = 32, 18
"""Of MXFP4: columns of a scale, and the bytes of them and of it."""
Stack = torch.Tensor | QuantizedMatrix


@dataclass(frozen=True, slots=True)
class ExpertsShape:
    name: str
    experts: int
    top_k: int
    size: int
    hidden: int
    packed: bool = False
    """In MXFP4, with activations as gpt-oss has them."""

    @property
    def expert_bytes(self) -> int:
        numbers = 3 * self.size * self.hidden
        return numbers // _GROUP * _GROUP_BYTES if self.packed else 2 * numbers


SHAPES = (
    ExpertsShape("qwen3-30b-a3b", 128, 8, 768, 2048),
    ExpertsShape("deepseek-v2-lite", 64, 6, 1408, 2048),
    ExpertsShape("mixtral-8x7b", 8, 2, 14336, 4096),
    ExpertsShape("llama-4-scout", 16, 1, 8192, 5120),
    ExpertsShape("gpt-oss-20b in MXFP4", 32, 4, 2880, 2880, packed=True),
    ExpertsShape("gpt-oss-120b in MXFP4", 128, 4, 2880, 2880, packed=True),
)


def results(seconds: float) -> Iterator[KernelResult]:
    for shape in SHAPES:
        for tokens in TOKENS:
            yield _result(shape, tokens)


def _result(shape: ExpertsShape, tokens: int, device: str = "cuda") -> KernelResult:
    logits = torch.randn(tokens, shape.experts, device=device, dtype=torch.bfloat16)
    routing = Routing(shape.top_k)
    x = torch.randn(tokens, shape.hidden, device=device, dtype=torch.bfloat16)
    expert_bytes, activation = shape.expert_bytes, "clamped_swiglu" if shape.packed else "silu"
    touched = len(set(route_tokens(logits, None, routing)[0].flatten().tolist()))
    layer = partial(_layer, logits, routing, x, activation)  # type: ignore[arg-type]
    calls = [partial(layer, *stacks) for stacks in _stacks(shape, touched * expert_bytes, device)]
    return KernelResult(
        op="experts_mlp",
        case=f"{shape.name}, {tokens} tokens, {touched} experts",
        seconds=time_calls(calls),
        bytes=float(touched * expert_bytes + 2 * x.nbytes),
        operations=2.0 * tokens * shape.top_k * 3 * shape.size * shape.hidden,
    )


def _layer(
    logits: torch.Tensor, routing: Routing, x: torch.Tensor, activation: Activation, up: Stack, down: Stack
) -> torch.Tensor:
    return experts_mlp(x, *route_tokens(logits, None, routing), up, down, activation)


def _stacks(shape: ExpertsShape, read: int, device: str) -> list[tuple[Stack, Stack]]:
    """As many copies as it takes for what a call reads to be out of the cache when its turn comes again."""
    count = max(1, -(-BEYOND_THE_CACHE // read))
    up_rows, down_rows = 2 * shape.experts * shape.size, shape.experts * shape.hidden
    up_shape, down_shape = (up_rows, shape.hidden), (down_rows, shape.size)
    make = _random_mxfp4 if shape.packed else _random
    return [(make(up_shape, device), make(down_shape, device)) for _ in range(count)]


def _random(shape: tuple[int, int], device: str) -> torch.Tensor:
    return torch.randn(shape, device=device, dtype=torch.bfloat16).mul_(0.02)


def _random_mxfp4(shape: tuple[int, int], device: str) -> QuantizedMatrix:
    rows, columns = shape
    values = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8, device=device)
    scales = torch.full((rows, columns // _GROUP), 2.0**-7, dtype=torch.bfloat16, device=device)
    return QuantizedMatrix("fp4", values, scales, None, columns, _GROUP)
