"""Products with quantized matrices of llama-8b's shapes, from one row to many, beside those with bfloat16 weights.

Without tuning, the ways that ship are timed; with it, every candidate is checked against the expanded matrix and timed
beside the way of many rows. Codes rotate through more memory than the cache holds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from statistics import median
from time import monotonic

import torch
from torch import Tensor

from quire.bench.kernels.gpu_timing import BEYOND_THE_CACHE, rotating_copies, time_calls
from quire.bench.kernels.quantized_candidates import ways
from quire.bench.kernels.quantized_cases import FORMS, copies_of, random_matrix
from quire.bench.kernels.result import KernelResult
from quire.bench.kernels.tuning import compile_ahead, fastest_choice
from quire.ops.functional import expand_matrix, linear, quantized_linear
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.card import card_of
from quire.ops.triton.quantized_linear import multiply_many
from quire.ops.triton.quantized_skinny import multiply_by
from quire.ops.triton.quantized_skinny_choices import MOST_ROWS, Form, choose, form_of, rows_of_a_block
from quire.ops.triton.scaled_gemm import can_multiply
from quire.ops.triton.skinny_gemm_choices import Choice

SHAPES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
"""out × in: queries, keys and values; attention's output; gate and up; down; vocabulary."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MANY_ROWS = (2048, 8192)
MOST_OUTPUTS_OF_MANY = 65536
"""A prompt computes the logits of its last token alone."""
_DEVICE = torch.device("cuda")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`many` is how long the way of many rows took, where it was measured; `choice` and `ours` the best of the rest."""

    form: Form
    rows: int
    out_size: int
    in_size: int
    choice: Choice | None
    ours: tuple[float, ...] | None
    many: tuple[float, ...]

    @property
    def is_ahead(self) -> bool:
        return self.ours is not None and median(self.ours) < median(self.many)


def results(seconds: float) -> Iterator[KernelResult]:
    """What ships. `seconds` is for CPUs: a graph's replays take as long as they take."""
    _compile(tune=False)
    dense: dict[tuple[int, int, int], float] = {}
    for out_size, in_size in SHAPES:
        weights = rotating_copies(_random(out_size, in_size))
        for rows in _rows_of(out_size):
            x = _random(rows, in_size)
            dense[rows, out_size, in_size] = median(time_calls([partial(linear, x, weight) for weight in weights]))
    for name in FORMS:
        for out_size, in_size in SHAPES:
            matrices = copies_of(random_matrix(name, out_size, in_size, _DEVICE), BEYOND_THE_CACHE)
            for rows in _rows_of(out_size):
                yield _shipped(name, rows, matrices, dense[rows, out_size, in_size])


def _rows_of(out_size: int) -> tuple[int, ...]:
    return ROWS if out_size > MOST_OUTPUTS_OF_MANY else (*ROWS, *MANY_ROWS)


def _shipped(name: str, rows: int, matrices: Sequence[QuantizedMatrix], dense: float) -> KernelResult:
    matrix = matrices[0]
    x = _random(rows, matrix.columns)
    choice = choose(card_of(x.device), _form(matrix), rows, matrix.rows, matrix.columns)
    how = "many" if choice is None else " ".join(map(str, astuple(choice)))
    return KernelResult(
        op=f"quantized_linear {name}",
        case=f"{rows} × {matrix.columns} → {matrix.rows} ({how})",
        seconds=time_calls([partial(quantized_linear, x, each) for each in matrices]),
        bytes=matrix.nbytes + 2.0 * rows * (matrix.rows + matrix.columns),
        operations=2.0 * rows * matrix.rows * matrix.columns,
        beside=dense,
        beside_name="bfloat16",
    )


def tuned(seconds: float, say: Callable[[str], None]) -> Iterator[Outcome]:
    """Every case; those after so many seconds get only the choice that ships."""
    deadline = monotonic() + seconds
    _compile(tune=True)
    say(f"compiled, {deadline - monotonic():.0f} s left to measure")
    for name in FORMS:
        for out_size, in_size in SHAPES:
            matrices = copies_of(random_matrix(name, out_size, in_size, _DEVICE), BEYOND_THE_CACHE)
            expanded = expand_matrix(matrices[0], torch.bfloat16)
            for rows in ROWS:
                yield _best(rows, matrices, expanded, deadline, say)


def _best(
    rows: int, matrices: Sequence[QuantizedMatrix], expanded: Tensor, deadline: float, say: Callable[[str], None]
) -> Outcome:
    matrix = matrices[0]
    x = _random(rows, matrix.columns)
    expected = torch.nn.functional.linear(x, expanded)
    many = time_calls([partial(multiply_many, x, each, None) for each in matrices])
    form = _form(matrix)
    found = fastest_choice(
        ways(card_of(x.device), form, rows, matrix.rows, matrix.columns, tune=True),
        lambda choice: [partial(multiply_by, choice, x, each, None) for each in matrices],
        expected,
        f"{matrix.codes}, {rows} rows",
        deadline,
        say,
    )
    return Outcome(form, rows, matrix.rows, matrix.columns, found.choice, found.times, many)


def _compile(*, tune: bool) -> None:
    """A kernel is the same for all shapes that are whole blocks, and each is compiled once."""
    kernels: dict[tuple[object, ...], Callable[[], Tensor]] = {}
    for name in FORMS:
        for out_size, in_size in SHAPES:
            matrix = random_matrix(name, min(out_size, 4096), in_size, _DEVICE)
            form = _form(matrix)
            for rows in ROWS:
                x = _random(rows, in_size)
                for choice in ways(card_of(x.device), form, rows, out_size, in_size, tune):
                    shown = rows if choice.cores == "cuda" else rows_of_a_block(rows)
                    kernel = (form, replace(choice, splits=min(choice.splits, 2)), shown, in_size % choice.block_in)
                    kernels.setdefault(kernel, partial(multiply_by, choice, x, matrix, None))
    compile_ahead(kernels.values())


def _form(matrix: QuantizedMatrix) -> Form:
    return form_of(matrix, can_multiply(matrix))


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=_DEVICE)


assert max(ROWS) <= MOST_ROWS
