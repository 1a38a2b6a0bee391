"""`quire bench kernels`: the operations alone, beside what the machine can do; and the tuner of skinny GEMMs."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from quire.bench.measure import Measure, median
from quire.bench.report import new_report
from quire.bench.summary_rows import Grid, digits
from quire.cli.bench.outputs import OUTPUT, OutputOptions, tell
from quire.config.bounds import check
from quire.core.errors import ConfigError

if TYPE_CHECKING:
    from quire.bench.kernels.result import KernelResult, Limits

Ops = Annotated[
    list[str] | None,
    Parameter(
        help="Which: linear, attention; on a GPU also quantized_linear, norm, heads, activation, sampling. Unset: all.",
        negative="",
    ),
]
Threads = Annotated[int | None, Parameter(help="Threads of a CPU. Unset: one on each physical core.")]
Seconds = Annotated[float | None, Parameter(help="For each case on a CPU (usually 0.3); with --tune, for all (220).")]
Tune = Annotated[bool, Parameter(help="Try many ways to cut each skinny GEMM, and extend their table.", negative="")]
TableFile = Annotated[
    Path | None, Parameter(name="--table", help="With --tune: where the table goes. Unset: to standard output.")
]
_USUAL_SECONDS = 0.3
_TUNE_SECONDS = 220.0


def kernels(
    ops: Ops = None,
    *,
    threads: Threads = None,
    seconds: Seconds = None,
    tune: Tune = False,
    table: TableFile = None,
    output: OutputOptions = OUTPUT,
) -> int:
    """Time the operations; GB/s and GOP/s of each, and its share of what the machine reached at all."""
    if table is not None and not tune:
        raise ConfigError("--table is where --tune writes; give both.")
    check(threads is None or threads >= 1, "threads", threads, "1 or more", "leave it out for one on each core")
    check(seconds is None or seconds > 0, "seconds", seconds, "above 0", "leave it out for the usual")
    from quire.bench.kernels.registry import benchmarks, limits_of, prepare, this_device

    device = this_device()
    if tune and device != "cuda":
        raise ConfigError("--tune is for skinny GEMMs on a GPU, and torch sees none here.")
    chosen = benchmarks(device, ops or [])
    name = prepare(device, threads)
    limits = limits_of(device)
    if tune:
        found = _tuned(chosen, seconds or _TUNE_SECONDS, table)
    else:
        found = [result for run in chosen.values() for result in _watched(run(seconds or _USUAL_SECONDS))]
    measures = [Measure(result.name, "s", "lower", [[each] for each in result.seconds]) for result in found]
    title = f"Kernels on {name}; limits: {limits}"
    setting = {"device": device, "ops": ", ".join(chosen), "seconds": seconds, "memory_bytes": limits.memory_bytes,
               "operations": limits.operations}  # fmt: skip
    floors = {result.name: result.floor(limits) for result in found}
    tell(new_report("kernels", title, setting, measures, floors=floors), output, [_grid(found, limits)])
    return 0


def _grid(found: list["KernelResult"], limits: "Limits") -> Grid:
    rows = []
    for result in found:
        taken = median(result.seconds)
        beside = "" if result.beside is None else f"{result.beside / taken:.2f}"
        rows.append(
            [
                result.name,
                digits(taken * 1e6),
                digits(result.bytes / taken / 1e9),
                digits(result.operations / taken / 1e9),
                f"{result.floor(limits) / taken:.0%}",
                beside,
            ]
        )
    others = {result.beside_name for result in found if result.beside is not None}
    header = ["", "µs", "GB/s", "GOP/s", "of limit", f"× {' or '.join(sorted(others))}" if others else ""]
    return Grid("Kernels", header, rows)


def _watched(results: Iterator["KernelResult"]) -> Iterator["KernelResult"]:
    """Says on a terminal what was last measured."""
    from quire.cli.starting import status

    line = "Measuring …"
    while True:
        with status(line):
            result = next(results, None)
        if result is None:
            return
        line = f"{result.name}: {median(result.seconds) * 1e6:,.0f} µs"
        yield result


def _tuned(ops: Collection[str], seconds: float, table: Path | None) -> list["KernelResult"]:
    """The skinny GEMMs of quantized matrices where they were asked for alone, else those of 16-bit weights."""
    if list(ops) == ["quantized_linear"]:
        from quire.bench.kernels.quantized_tuner import tune
    else:
        from quire.bench.kernels.skinny_gemm_tuner import tune

    found, source = tune(seconds, print)
    if table is None:
        print(source)
    else:
        table.expanduser().write_text(source, encoding="utf-8")
    return found
