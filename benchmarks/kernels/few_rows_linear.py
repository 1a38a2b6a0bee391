"""Products of 1 to 16 rows with the weights of two models: our kernels beside cuBLAS, in bfloat16.

    python -m benchmarks.kernels.few_rows_linear [--json FILE]
    python -m benchmarks.kernels.few_rows_linear --tune --table quire/ops/triton/few_rows_table.py

Without `--tune`, the choices that ship are timed; with it, every candidate is checked against torch's result and timed,
and the best become the table. Weights rotate through more memory than the cache holds.
"""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from time import monotonic

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn import functional
from triton.errors import TritonError  # type: ignore[import-untyped]

from benchmarks.kernels.timing import Timing, rotating_copies, time_calls
from quire.ops.triton import few_rows_table
from quire.ops.triton.few_rows_choices import MULTIPROCESSORS, Choice, ceil_div, choose, power_of_two_from
from quire.ops.triton.few_rows_linear import linear_by

SHAPES = (
    *((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)),  # llama-8b
    *((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072), (151936, 1024)),  # qwen3-0.6b
)
"""out × in: queries, keys and values; attention's output; gate and up; down; vocabulary."""
ROWS = (1, 2, 4, 8, 16)
FARTHEST = 1e-2
"""How far from torch's bfloat16 result a result may lie, as ‖difference‖ / ‖result‖: both round to 8 bits."""
SECONDS_TO_TUNE = 220.0

MOST_CANDIDATES = 24
"""Of one product: more would not fit four minutes for all of them."""
CUDA_TILES = ((4, 1024), (2, 512), (8, 2048), (1, 512))
"""Warps, and the inputs they read at a time: 256 or 512 a warp."""
CUDA_TILES_OF_EIGHT_ROWS = CUDA_TILES[:2]
TENSOR_TILES = (
    # for a warpgroup's instruction
    *((64, 128, 4, 4), (64, 128, 4, 6), (64, 256, 4, 4), (128, 128, 4, 4), (128, 64, 4, 6)),
    # for a warp's, where outputs are few
    *((32, 256, 2, 4), (16, 256, 1, 4), (16, 512, 2, 4)),
)
"""Outputs, inputs, warps and stages."""


@dataclass(frozen=True, slots=True)
class Case:
    rows: int
    out_size: int
    in_size: int

    @property
    def weight_bytes(self) -> int:
        return self.out_size * self.in_size * 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where no way of ours could be timed, `choice` and `ours` are None."""

    case: Case
    cublas: Timing
    choice: Choice | None
    ours: Timing | None
    tried: int

    @property
    def is_ahead(self) -> bool:
        return self.ours is not None and self.ours.microseconds < self.cublas.microseconds

    def line(self) -> str:
        case, cublas, ours = self.case, self.cublas.microseconds, self.ours
        start = f"{case.out_size:>6} × {case.in_size:<5} {case.rows:>4} {cublas:>8.2f} {_rate(case, cublas):>6.2f}"
        if ours is None or self.choice is None:
            return f"{start}   none of ours"
        ratio = cublas / ours.microseconds
        rate = _rate(case, ours.microseconds)
        return f"{start} {ours.microseconds:>8.2f} {rate:>6.2f} {ratio:>6.2f}  {astuple(self.choice)}"


HEADER = f"{'out':>6} × {'in':<5} rows {'cuBLAS µs':>8} {'TB/s':>5} {'ours µs':>8} {'TB/s':>6} {'ratio':>6}  choice"


def _rate(case: Case, microseconds: float) -> float:
    """Terabytes of weights a second."""
    return case.weight_bytes / microseconds / 1e6


def main() -> None:
    options = _options()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: kernels are timed on a GPU")
    deadline = monotonic() + options.seconds
    if options.tune:
        _compile_ahead([Case(rows, *shape) for shape in SHAPES for rows in ROWS])
        print(f"compiled, {deadline - monotonic():.0f} s left to measure", flush=True)
    print(HEADER)
    outcomes = []
    for shape in SHAPES:
        weights = rotating_copies(_random(*shape) / shape[1] ** 0.5)
        for rows in ROWS:
            outcomes.append(_measure(Case(rows, *shape), weights, options.tune, deadline))
            print(outcomes[-1].line(), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    if options.tune:
        source = table_source(outcomes, _machine())
        if options.table:
            options.table.write_text(source)
        else:
            print(source)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Times products of few rows, ours beside cuBLAS.")
    parser.add_argument("--tune", action="store_true", help="try many ways to cut each product, and print the table")
    parser.add_argument("--json", type=Path, help="where every timing goes")
    parser.add_argument("--table", type=Path, help="with --tune: where the table goes, instead of the output")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS_TO_TUNE,
        help="with --tune: after so long, the rest of the cases get only the choice that ships (%(default)s)",
    )
    return parser.parse_args()


def _measure(case: Case, weights: Sequence[Tensor], tune: bool, deadline: float) -> Outcome:
    """cuBLAS, and the best of our ways: of all candidates in time, or the one that ships."""
    x = _random(case.rows, case.in_size)
    expected = functional.linear(x, weights[0])
    cublas = time_calls([partial(functional.linear, x, weight) for weight in weights])
    best, fastest, tried = None, None, 0
    for choice in _ways(case, tune):
        if tried and monotonic() > deadline:
            break
        tried += 1
        timing = _timed(choice, x, weights, expected)
        if timing is not None and (fastest is None or timing.microseconds < fastest.microseconds):
            best, fastest = choice, timing
    return Outcome(case, cublas, best, fastest, tried)


def _ways(case: Case, tune: bool) -> list[Choice]:
    """The choice that ships, where there is one; when tuning, then all others."""
    shipped = choose(case.rows, case.out_size, case.in_size)
    first = [] if shipped is None else [shipped]
    others = candidates(case.rows, case.out_size, case.in_size) if tune else []
    return first + [choice for choice in others if choice != shipped]


def candidates(rows: int, out_size: int, in_size: int) -> list[Choice]:
    """What is worth a measurement, the likeliest first."""
    on_cuda = list(_on_cuda_cores(rows, out_size, in_size)) if rows <= 8 else []
    on_tensor = list(dict.fromkeys(_on_tensor_cores(out_size, in_size))) if rows > 2 else []
    mixed = on_cuda[:20] + on_tensor if rows <= 4 else on_tensor[:20] + on_cuda
    return mixed[:MOST_CANDIDATES]


def _on_cuda_cores(rows: int, out_size: int, in_size: int) -> Iterator[Choice]:
    """Two outputs a block at least where they are many, since x is read once a block; 64 weights a thread at most."""
    tiles = CUDA_TILES if rows <= 4 else CUDA_TILES_OF_EIGHT_ROWS
    for block_out, (num_warps, block_in), num_stages in product((4, 2, 8, 1), tiles, (1, 3)):
        fits = block_in <= power_of_two_from(in_size) and block_out * block_in <= 64 * 32 * num_warps
        if not fits or ceil_div(out_size, block_out) < MULTIPROCESSORS or (block_out == 1 and out_size >= 4096):
            continue
        if num_stages > 1 and (in_size <= block_in or rows > 4):
            continue  # one turn has nothing to overlap; eight rows leave no registers for it
        yield Choice("cuda", block_out, block_in, 1, num_warps, num_stages)


def _on_tensor_cores(out_size: int, in_size: int) -> Iterator[Choice]:
    """Each tile with the splits that give a multiprocessor about two, one or four programs, of two turns at least."""
    for programs_each, (block_out, block_in, num_warps, num_stages) in product((2, 1, 4), TENSOR_TILES):
        wanted = ceil_div(programs_each * MULTIPROCESSORS, ceil_div(out_size, block_out))
        splits = min(wanted, max(1, in_size // (2 * block_in)))
        yield Choice("tensor", block_out, block_in, splits, num_warps, num_stages)


def _timed(choice: Choice, x: Tensor, weights: Sequence[Tensor], expected: Tensor) -> Timing | None:
    """None, with a word of why, where a choice does not fit the device or computes something else."""
    try:
        found = linear_by(choice, x, weights[0], None)
        distance = float((found - expected).float().norm() / expected.float().norm())
        if not distance < FARTHEST:
            print(f"  wrong by {distance:.1e}: {x.shape[0]} rows, {astuple(choice)}")
            return None
        return time_calls([partial(linear_by, choice, x, weight, None) for weight in weights])
    except (TritonError, RuntimeError) as error:  # of the compiler, or too much shared memory
        print(f"  cannot run {astuple(choice)}: {str(error).splitlines()[0]}")
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
        for choice in _ways(case, tune=True):
            rows = case.rows if choice.cores == "cuda" else 0
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
    with suppress(TritonError, RuntimeError):
        call()


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")


def _machine() -> str:
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"


def table_source(outcomes: Sequence[Outcome], machine: str) -> str:
    """The file of the table as it stands, with entries for what was measured; entries of other shapes stay."""
    table = {shape: dict(entries) for shape, entries in few_rows_table.TABLE.items()}
    for outcome in outcomes:
        entry = astuple(outcome.choice) if outcome.choice is not None and outcome.is_ahead else None
        table.setdefault((outcome.case.out_size, outcome.case.in_size), {})[outcome.case.rows] = entry
    lines = []
    for shape, entries in table.items():
        lines.append(f"    {shape}: {{")
        lines += [f"        {rows}: {_written(entry)}," for rows, entry in entries.items()]
        lines.append("    },")
    source = Path(few_rows_table.__file__).read_text(encoding="utf-8")
    head, opening, rest = source.partition("]] = {\n")
    _, closing, tail = rest.partition("\n}\n")
    head = re.sub(r"^Measured on: .*$", f"Measured on: {machine}.", head, flags=re.MULTILINE)
    return head + opening + "\n".join(lines) + closing + tail


def _written(entry: tuple[object, ...] | None) -> str:
    return str(entry).replace("'", '"')


if __name__ == "__main__":
    main()
