"""Experts on a GPU, in bfloat16: routing, grouping and the grouped GEMMs together, of one layer of known models."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from quire.bench.kernels.gpu_timing import BEYOND_THE_CACHE, time_calls
from quire.bench.kernels.result import KernelResult
from quire.core.routing import Routing
from quire.ops.functional import experts_mlp, route_tokens

TOKENS = (1, 4, 8, 32, 256, 4096)


@dataclass(frozen=True, slots=True)
class ExpertsShape:
    name: str
    experts: int
    top_k: int
    size: int
    hidden: int


SHAPES = (
    ExpertsShape("qwen3-30b-a3b", 128, 8, 768, 2048),
    ExpertsShape("deepseek-v2-lite", 64, 6, 1408, 2048),
    ExpertsShape("mixtral-8x7b", 8, 2, 14336, 4096),
)


def results(seconds: float) -> Iterator[KernelResult]:
    for shape in SHAPES:
        for tokens in TOKENS:
            yield _result(shape, tokens)


def _result(shape: ExpertsShape, tokens: int, device: str = "cuda") -> KernelResult:
    logits = torch.randn(tokens, shape.experts, device=device, dtype=torch.bfloat16)
    routing = Routing(shape.top_k)
    x = torch.randn(tokens, shape.hidden, device=device, dtype=torch.bfloat16)
    expert_bytes = 2 * 3 * shape.size * shape.hidden
    touched = len(set(route_tokens(logits, None, routing)[0].flatten().tolist()))
    calls = [partial(_layer, logits, routing, x, *stacks) for stacks in _stacks(shape, touched * expert_bytes, device)]
    return KernelResult(
        op="experts_mlp",
        case=f"{shape.name}, {tokens} tokens, {touched} experts",
        seconds=time_calls(calls),
        bytes=float(touched * expert_bytes + 2 * x.nbytes),
        operations=2.0 * tokens * shape.top_k * 3 * shape.size * shape.hidden,
    )


def _layer(
    logits: torch.Tensor, routing: Routing, x: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    return experts_mlp(x, *route_tokens(logits, None, routing), up, down, "silu")


def _stacks(shape: ExpertsShape, read: int, device: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """As many copies as it takes for what a call reads to be out of the cache when its turn comes again."""
    count = max(1, -(-BEYOND_THE_CACHE // read))
    up_rows, down_rows = 2 * shape.experts * shape.size, shape.experts * shape.hidden
    up_shape, down_shape = (up_rows, shape.hidden), (down_rows, shape.size)
    return [(_random(up_shape, device), _random(down_shape, device)) for _ in range(count)]


def _random(shape: tuple[int, int], device: str) -> torch.Tensor:
    return torch.randn(shape, device=device, dtype=torch.bfloat16).mul_(0.02)
