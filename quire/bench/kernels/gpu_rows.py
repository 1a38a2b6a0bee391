"""Kernels of a GPU that work on rows, in bfloat16: norms, heads, activations, and what makes tokens of logits.

Every call reads other memory, so that shares of the limit mean what they say. In a step most of that memory was written
just before and is still in the cache, and few rows take as long as a launch takes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from quire.bench.kernels.gpu_timing import BEYOND_THE_CACHE, rotating_copies, time_calls
from quire.bench.kernels.result import KernelResult
from quire.ops.adjustments import Adjustments
from quire.ops.functional import (
    add_layer_norm,
    add_rms_norm,
    adjust_logits,
    argmax,
    gated_activation,
    layer_norm,
    mask_logits,
    prepare_heads,
    rms_norm,
    sample_tokens,
    token_logprobs,
)
from quire.ops.row_tensors import RowTensors

ROWS = (1, 128, 8192)
"""Tokens of a step: one stream, many, prompts."""
SAMPLING_ROWS = (1, 32, 256)
MOST_COPIES = 32
_BLOCK = 16


@dataclass(frozen=True, slots=True)
class RowShape:
    """What a model's rows are made of."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int


LLAMA_8B = RowShape(4096, 14336, 32, 8, 128, 128256)


@dataclass(frozen=True, slots=True)
class RowCase:
    """One kernel on so many rows: calls that are alike but for the memory they read, and what each must move."""

    name: str
    calls: Sequence[Callable[[], object]]
    bytes: float

    def result(self, op: str) -> KernelResult:
        return KernelResult(op, self.name, time_calls(self.calls), self.bytes, operations=0.0)


def norm_results(seconds: float) -> Iterator[KernelResult]:
    """`seconds` is for CPUs here as below: a graph's replays take as long as they take."""
    for rows in ROWS:
        yield from (case.result("norm") for case in norm_cases(LLAMA_8B, rows, "cuda"))


def heads_results(seconds: float) -> Iterator[KernelResult]:
    for rows in ROWS:
        yield heads_case(LLAMA_8B, rows, "cuda").result("heads")


def activation_results(seconds: float) -> Iterator[KernelResult]:
    for rows in ROWS:
        yield activation_case(LLAMA_8B, rows, "cuda").result("activation")


def sampling_results(seconds: float) -> Iterator[KernelResult]:
    for rows in SAMPLING_ROWS:
        yield from (case.result("sampling") for case in sampling_cases(LLAMA_8B, rows, "cuda"))


def norm_cases(shape: RowShape, rows: int, device: str) -> Iterator[RowCase]:
    """Reads a row and writes one; with a sum before it, two of each."""
    weight, bias = torch.ones(2, shape.hidden, dtype=torch.bfloat16, device=device)
    inputs = _copies(_random(rows, shape.hidden, device=device))
    row_bytes = inputs[0].nbytes
    yield RowCase(f"rms_norm, {rows} × {shape.hidden}", [partial(rms_norm, x, weight, 1e-5) for x in inputs],
                  2.0 * row_bytes)  # fmt: skip
    added = _random(rows, shape.hidden, device=device)
    yield RowCase(
        f"add_rms_norm, {rows} × {shape.hidden}",
        [partial(add_rms_norm, x, added, weight, 1e-5) for x in inputs],
        4.0 * row_bytes,
    )
    yield RowCase(f"layer_norm, {rows} × {shape.hidden}", [partial(layer_norm, x, weight, bias, 1e-5) for x in inputs],
                  2.0 * row_bytes)  # fmt: skip
    yield RowCase(
        f"add_layer_norm, {rows} × {shape.hidden}",
        [partial(add_layer_norm, x, added, weight, bias, 1e-5) for x in inputs],
        4.0 * row_bytes,
    )


def heads_case(shape: RowShape, rows: int, device: str) -> RowCase:
    """Heads are read, queries written, keys and values put into the cache; angles are float32."""
    all_heads = shape.heads + 2 * shape.kv_heads
    given = _copies(_random(rows, all_heads, shape.head_dim, device=device))
    blocks = -(-rows // _BLOCK)
    keys, values = _random(2, blocks, _BLOCK, shape.kv_heads, shape.head_dim, device=device)
    slots = torch.randperm(blocks * _BLOCK)[:rows].to(device)
    cos, sin = torch.rand(2, rows, shape.head_dim // 2, device=device)
    calls = [partial(prepare_heads, heads, shape.kv_heads, None, (cos, sin), keys, values, slots) for heads in given]
    name = f"prepare_heads, {rows} × {shape.heads}/{shape.kv_heads} × {shape.head_dim}"
    return RowCase(name, calls, 2.0 * given[0].nbytes + cos.nbytes + sin.nbytes)


def activation_case(shape: RowShape, rows: int, device: str) -> RowCase:
    """Two halves are read, one is written."""
    given = _copies(_random(rows, 2 * shape.intermediate, device=device))
    calls = [partial(gated_activation, gate_up, "silu") for gate_up in given]
    return RowCase(f"gated_activation, {rows} × {shape.intermediate}", calls, 1.5 * given[0].nbytes)


def sampling_cases(shape: RowShape, rows: int, device: str) -> Iterator[RowCase]:
    """Each must read its logits once; a mask for grammars is read, and writes the half that it leaves out."""
    about = f"{rows} × {shape.vocabulary}"
    narrow = _copies(_random(rows, shape.vocabulary, device=device))
    yield RowCase(f"argmax, {about}", [partial(argmax, logits) for logits in narrow], float(narrow[0].nbytes))
    logits_of_calls = _copies(torch.randn(rows, shape.vocabulary, device=device) * 3)
    logits_bytes = float(logits_of_calls[0].nbytes)
    draw = partial(_draw, rows, device)
    for way, filters in (("temperature", {}), ("top-k 50", {"top_k": 50}), ("top-p 0.9", {"top_p": 0.9})):
        calls = [partial(draw(**filters), logits) for logits in logits_of_calls]
        yield RowCase(f"sample_tokens by {way}, {about}", calls, logits_bytes)
    own, history = torch.arange(rows, device=device), torch.zeros((rows + 1, 1), dtype=torch.int32, device=device)
    position = torch.ones(rows, dtype=torch.int64, device=device)
    asked = _asked(rows, shape.vocabulary, device)
    adjusted = [partial(adjust_logits, logits, own, position, history, asked) for logits in narrow]
    # logits, what grammars leave of them and counts are read, and float32 is written
    adjusted_bytes = narrow[0].nbytes * (1 + 1 / 16 + 2 + 2)
    yield RowCase(f"adjust_logits by masks and penalties, {about}", adjusted, adjusted_bytes)
    masked = [partial(mask_logits, logits, own, asked.masks) for logits in _copies(narrow[0])]
    # every other logit is left out: all are read, to be written again
    yield RowCase(f"mask_logits, {about}", masked, narrow[0].nbytes * (1 + 1 / 16 + 1))
    counts = torch.full((rows,), 5, dtype=torch.int32, device=device)
    reported = [partial(token_logprobs, logits, own, counts, 5) for logits in narrow]
    yield RowCase(f"token_logprobs of 5, {about}", reported, float(narrow[0].nbytes))


def _asked(rows: int, vocabulary: int, device: str) -> Adjustments:
    """All rows have penalties, and masks that leave out half of the tokens."""
    nothing = [RowTensors(rows, torch.device(device)) for _ in range(4)]
    counts = RowTensors(rows, torch.device(device))
    for row in range(rows):
        counts.put(row, torch.randint(0, 3, (vocabulary,), dtype=torch.int32, device=device))
    return Adjustments(
        masks=torch.full((rows, -(-vocabulary // 32)), 0x55555555, dtype=torch.int32, device=device),
        is_masked=torch.ones(rows, dtype=torch.bool, device=device),
        allowed=nothing[0],
        counts=counts,
        penalties=torch.tensor((1.1, 0.5, 0.1), device=device).repeat(rows, 1),
        biases=nothing[1],
        ends=nothing[2],
        first_end=torch.zeros(rows, dtype=torch.int64, device=device),
        bad_words=nothing[3],
    )


def _draw(rows: int, device: str, top_k: int | None = None, top_p: float | None = None) -> Callable[[Tensor], object]:
    """Draws a token for each of so many rows of logits, all filtered alike."""
    seed, stream, position = torch.arange(3 * rows, device=device).view(3, rows)
    temperature = torch.full((rows,), 0.8, device=device)
    most = None if top_k is None else torch.full((rows,), top_k, device=device)
    mass = None if top_p is None else torch.full((rows,), top_p, device=device)
    return lambda logits: sample_tokens(logits, temperature, seed, stream, position, most, mass)


def _copies(tensor: Tensor) -> list[Tensor]:
    return rotating_copies(tensor, min(BEYOND_THE_CACHE, MOST_COPIES * tensor.nbytes))


def _random(*shape: int, device: str) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=device)
