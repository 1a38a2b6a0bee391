"""Skinny GEMMs (1 to 128 rows) with the weights of two models: our kernels beside cuBLAS, in bfloat16.

Without tuning, the choices that ship are timed; with it, every candidate is checked against torch's result and timed.
Weights rotate through more memory than the cache holds.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import partial
from statistics import median
from time import monotonic

import torch
from torch import Tensor
from torch.nn import functional

from quire.bench.kernels.gpu_timing import rotating_copies, time_calls
from quire.bench.kernels.result import KernelResult
from quire.bench.kernels.skinny_gemm_candidates import ways
from quire.ops.triton.card import card_of
from quire.ops.triton.compiler import CANNOT_RUN
from quire.ops.triton.skinny_gemm import linear_by
from quire.ops.triton.skinny_gemm_choices import Choice, padded_rows

SHAPES = (
    *((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)),  # llama-8b
    *((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072), (151936, 1024)),  # qwen3-0.6b
)
"""out × in: queries, keys and values; attention's output; gate and up; down; vocabulary."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
FARTHEST = 1e-2
"""How far from torch's bfloat16 result a result may lie, as ‖difference‖ / ‖result‖: both round to 8 bits."""


@dataclass(frozen=True, slots=True)
class Case:
    rows: int
    out_size: int
    in_size: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where no way of ours could be timed, `choice` and `ours` are None."""

    case: Case
    cublas: tuple[float, ...]
    choice: Choice | None
    ours: tuple[float, ...] | None
    tried: int

    @property
    def is_ahead(self) -> bool:
        return self.ours is not None and median(self.ours) < median(self.cublas)

    def result(self) -> KernelResult:
        case = self.case
        how = "cuBLAS" if self.choice is None else " ".join(map(str, astuple(self.choice)))
        return KernelResult(
            op="linear",
            case=f"{case.rows} × {case.in_size} → {case.out_size} ({how})",
            seconds=self.ours or self.cublas,
            bytes=2.0 * (case.out_size * case.in_size + case.rows * (case.out_size + case.in_size)),
            operations=2.0 * case.rows * case.out_size * case.in_size,
            beside=median(self.cublas),
            beside_name="cuBLAS",
        )


def results(seconds: float) -> Iterator[KernelResult]:
    """What ships. `seconds` is for CPUs: a graph's replays take as long as they take."""
    for outcome in measure(tune=False, deadline=0.0, say=lambda line: None):
        yield outcome.result()


def measure(tune: bool, deadline: float, say: Callable[[str], None]) -> Iterator[Outcome]:
    """Every case; when tuning, those after the deadline (of `monotonic`) get only the choice that ships."""
    if tune:
        _compile_ahead([Case(rows, *shape) for shape in SHAPES for rows in ROWS])
        say(f"compiled, {deadline - monotonic():.0f} s left to measure")
    for shape in SHAPES:
        weights = rotating_copies(_random(*shape) / shape[1] ** 0.5)
        for rows in ROWS:
            yield _outcome(Case(rows, *shape), weights, tune, deadline, say)


def _outcome(case: Case, weights: Sequence[Tensor], tune: bool, deadline: float, say: Callable[[str], None]) -> Outcome:
    """cuBLAS, and the best of our ways: of all candidates in time, or the one that ships."""
    x = _random(case.rows, case.in_size)
    expected = functional.linear(x, weights[0])
    cublas = time_calls([partial(functional.linear, x, weight) for weight in weights])
    best: Choice | None = None
    fastest: tuple[float, ...] | None = None
    tried = 0
    for choice in ways(card_of(x.device), case.rows, case.out_size, case.in_size, tune):
        if tried and monotonic() > deadline:
            break
        tried += 1
        times = _timed(choice, x, weights, expected, say)
        if times is not None and (fastest is None or median(times) < median(fastest)):
            best, fastest = choice, times
    return Outcome(case, cublas, best, fastest, tried)


def _timed(
    choice: Choice, x: Tensor, weights: Sequence[Tensor], expected: Tensor, say: Callable[[str], None]
) -> tuple[float, ...] | None:
    """None, with a word of why, where a choice does not fit the device or computes something else."""
    try:
        found = linear_by(choice, x, weights[0], None)
        distance = float((found - expected).float().norm() / expected.float().norm())
        if not distance < FARTHEST:
            say(f"wrong by {distance:.1e}: {x.shape[0]} rows, {astuple(choice)}")
            return None
        return time_calls([partial(linear_by, choice, x, weight, None) for weight in weights])
    except CANNOT_RUN as error:
        say(f"cannot run {astuple(choice)}: {str(error).splitlines()[0]}")
        return None


def _compile_ahead(cases: Sequence[Case]) -> None:
    """Compile what will be timed, on all cores: most of it happens outside of Python's lock.

    A kernel is the same for all shapes that are whole blocks, and each is compiled once.
    """
    weights = {(case.out_size, case.in_size): torch.empty(0) for case in cases}
    for shape in weights:
        weights[shape] = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
    kernels: dict[tuple[object, ...], Callable[[], Tensor]] = {}
    for case in cases:
        x = _random(case.rows, case.in_size)
        for choice in ways(card_of(x.device), case.rows, case.out_size, case.in_size, tune=True):
            rows = case.rows if choice.cores == "cuda" else padded_rows(case.rows)
            kernel = (replace(choice, splits=min(choice.splits, 2)), rows, case.in_size % choice.block_in == 0)
            call = partial(linear_by, choice, x, weights[case.out_size, case.in_size], None)
            kernels.setdefault(kernel, call)
    first, *others = kernels.values()
    _compile(first)  # alone, since it also opens the device
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_compile, others))
    torch.cuda.synchronize()


def _compile(call: Callable[[], Tensor]) -> None:
    """What cannot be compiled says so when it is its turn to be timed."""
    with suppress(*CANNOT_RUN):
        call()


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")
