"""`quire bench serve`: a server under load over HTTP, ours or anybody's."""

from typing import Annotated

from cyclopts import Parameter

from quire.bench.datasets.dataset_config import DatasetConfig
from quire.bench.load_config import LoadConfig
from quire.bench.objectives import Objectives, parse_objectives
from quire.bench.report import LoadPoint, Report, Sweep, new_report
from quire.bench.server_target import TargetConfig
from quire.bench.sweep import SweepPlan, measures_by_load, parse_sweep, run_sweep
from quire.cli.bench.outputs import OUTPUT, OutputOptions, tell
from quire.cli.bench.sections import DATASET, DatasetOptions, Repeats, check_repeats, plain_settings, section
from quire.config.bounds import check
from quire.core.errors import ConfigError

Target = Annotated[TargetConfig, section("Server", 0.3)]
Load = Annotated[LoadConfig, section("Load", 0.7)]
TARGET, LOAD = TargetConfig(), LoadConfig()

Goodput = Annotated[
    list[str] | None,
    Parameter(
        help="What a good answer keeps to, in milliseconds, such as ttft:200 tpot:50 (also itl, e2e).",
        consume_multiple=True,
        negative="",
    ),
]
SweepOption = Annotated[
    str | None, Parameter(name="--sweep", help="Several loads, one after the other: rate=1,2,4 or concurrency=1,8,64.")
]
Share = Annotated[float, Parameter(help="With --sweep and --goodput: share of good answers that a load must hold.")]
Refine = Annotated[int, Parameter(help="With --sweep and --goodput: more loads between the last good and first bad.")]
_FAILED = 1
_INTERRUPTED = 130


def serve(
    *,
    target: Target = TARGET,
    dataset: DatasetOptions = DATASET,
    load: Load = LOAD,
    goodput: Goodput = None,
    sweep: SweepOption = None,
    slo_share: Share = 0.9,
    refine: Refine = 0,
    repeats: Repeats = 1,
    output: OutputOptions = OUTPUT,
) -> int:
    """Load a server and measure what clients see: first tokens, gaps, whole answers, rates, errors.

    Ends with exit code 1 if a request failed. It reports what it measured even then, and when it is interrupted.
    """
    objectives, plan = parse_objectives(goodput or []), None if sweep is None else parse_sweep(sweep)
    _check(load, plan, objectives, slo_share, refine)
    check_repeats(repeats)
    from quire.bench.serve_bench import ServeBench
    from quire.cli.bench.watching import Watching

    watching = Watching()

    bench = ServeBench(target, dataset, objectives, watching.records)
    points, found = [], None
    try:
        if plan is None:
            points = [point for point in [bench.measure(load, repeats)] if point.runs]
        else:
            points, found = run_sweep(bench, plan, load, repeats, objectives, slo_share, refine)
    finally:
        watching.close()
    if not points:
        raise KeyboardInterrupt  # before anything was answered
    report = _report(target, bench.model, dataset, load, objectives, points, found, bench.was_interrupted)
    tell(report, output)
    if bench.was_interrupted:
        return _INTERRUPTED
    return _FAILED if _failures(points) else 0


def _check(load: LoadConfig, plan: SweepPlan | None, objectives: Objectives, share: float, refine: int) -> None:
    check(0 < share <= 1, "slo_share", share, "above 0 and at most 1", "0.9 is nine of ten")
    check(0 <= refine <= 50, "refine", refine, "from 0 to 50", "each adds a run")
    if refine and (plan is None or not objectives):
        raise ConfigError("--refine searches between the loads of a --sweep for what holds --goodput; give both.")
    if share != 0.9 and (plan is None or not objectives):
        raise ConfigError("--slo-share has no effect without --sweep and --goodput; give both.")
    if plan is None:
        return
    fixed = load.request_rate if plan.over == "rate" else load.concurrency
    if fixed is not None:
        name = "--request-rate" if plan.over == "rate" else "--concurrency"
        raise ConfigError(f"{name} is given, and --sweep sets it for every run; leave it out.")
    if plan.over == "rate" and load.replay_speed is not None:
        raise ConfigError("--replay-speed and --sweep rate=… both say when to send; give one of them.")


def _report(
    target: TargetConfig,
    model: str,
    dataset: DatasetConfig,
    load: LoadConfig,
    objectives: Objectives,
    points: list[LoadPoint],
    found: Sweep | None,
    was_interrupted: bool,
) -> Report:
    how = load.describe(dataset) if found is None else f"a sweep over {found.over}"
    setting = plain_settings(target) | plain_settings(dataset) | plain_settings(load)
    setting |= {"model": model, "goodput": str(objectives) or None}
    measures = points[0].measures if found is None else measures_by_load(points, found.over)
    title = f"{model} at {target.url}, {target.endpoint}: {dataset.dataset} requests, {how}"
    runs = [run for point in points for run in point.runs]
    notes = []
    if was_interrupted:
        notes.append("Interrupted: this is what had finished by then.")
    if failures := _failures(points):
        notes.append(f"{failures:,} of {sum(run.requests for run in runs):,} requests failed.")
    if any(run.completed for run in runs) and not any(run.counted_by for run in runs):
        notes.append("The server sent no usage and there is no tokenizer here: tokens were not counted (--tokenizer).")
    return new_report("serve", title, setting, measures, points=points, sweep=found, notes=notes)


def _failures(points: list[LoadPoint]) -> int:
    return sum(run.requests - run.completed for point in points for run in point.runs)
