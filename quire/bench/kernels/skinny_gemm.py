"""Skinny GEMMs (1 to 128 rows) with the weights of two models: our kernels beside cuBLAS, in bfloat16.

Without tuning, the choices that ship are timed; with it, every candidate is checked against torch's result and timed.
Weights rotate through more memory than the cache holds.
"""

from collections.abc import Callable, Iterator, Sequence
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
from quire.bench.kernels.tuning import compile_ahead, fastest_choice
from quire.ops.triton.card import card_of
from quire.ops.triton.skinny_gemm import linear_by
from quire.ops.triton.skinny_gemm_choices import Choice, padded_rows

SHAPES = (
    *((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)),  # llama-8b
    *((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072), (151936, 1024)),  # qwen3-0.6b
)
"""out × in: queries, keys and values; attention's output; gate and up; down; vocabulary."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


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
        _compile([Case(rows, *shape) for shape in SHAPES for rows in ROWS])
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
    found = fastest_choice(
        ways(card_of(x.device), case.rows, case.out_size, case.in_size, tune),
        lambda choice: [partial(linear_by, choice, x, weight, None) for weight in weights],
        expected,
        f"{case.rows} rows",
        deadline,
        say,
    )
    return Outcome(case, cublas, found.choice, found.times, found.tried)


def _compile(cases: Sequence[Case]) -> None:
    """A kernel is the same for all shapes that are whole blocks, and each is compiled once."""
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
    compile_ahead(kernels.values())


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")
