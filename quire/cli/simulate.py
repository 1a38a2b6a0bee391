"""`quire simulate`: a workload on a simulated cluster, with the real scheduler and KV bookkeeping."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, get_args

from cyclopts import Group, Parameter

from quire.cli.options import (
    CACHE,
    PARALLEL,
    SCHEDULER,
    CacheOptions,
    ConfigFile,
    ParallelOptions,
    SchedulerOptions,
)
from quire.config.devices import DEVICES, find_device
from quire.config.engine import EngineConfig
from quire.config.model import ModelConfig
from quire.config.scheduler import OwnPolicy, Policy
from quire.config.server import RoutingStrategy
from quire.core.errors import ConfigError
from quire.core.plugins import check_known
from quire.simulation.day.config import ScenarioConfig
from quire.simulation.workload_config import WorkloadConfig


@dataclass(frozen=True, slots=True)
class SimulatedModel(ModelConfig):
    """Which model to simulate."""

    model: str = "llama-8b"
    """A built-in shape (llama-8b, llama-70b, qwen3-0.6b, qwen3-30b-a3b, deepseek-v2-lite), or a checkpoint as for
    `quire plan`."""


def _section(title: str, order: int) -> Parameter:
    return Parameter(name="*", group=Group(title, sort_key=order))


MODEL, WORKLOAD, DAY = SimulatedModel(), WorkloadConfig(), ScenarioConfig()

Model = Annotated[SimulatedModel, _section("Model", 1)]
Workload = Annotated[WorkloadConfig, _section("Workload", 0.5)]
ScenarioOptions = Annotated[ScenarioConfig, _section("Whole days", 0.7)]
Device = Annotated[
    str | None, Parameter(help=f"Device to simulate: {', '.join(DEVICES)}. Unset: h200, or a scenario's own.")
]
DeviceMemory = Annotated[str | None, Parameter(help="Memory of that device instead of its own, such as 24GB or 80GiB.")]
Replicas = Annotated[
    int | None,
    Parameter(
        help="Copies of the model, each on its own device (or tensor parallel group). Unset: 1, or a scenario's."
    ),
]
Routing = Annotated[
    RoutingStrategy,
    Parameter(help="Which replica gets a request: by cached prefix and load, by load alone, or each in turn."),
]
AsyncSteps = Annotated[
    bool,
    Parameter(help="Plan a step while the one before runs, as the engine does. Off: only when its result was read."),
]
Compare = Annotated[
    str | None,
    Parameter(help="More scheduling policies to run on the same requests, side by side, such as sjf,fair."),
]
Processes = Annotated[int | None, Parameter(help="Processes to simulate replicas in. Unset: one a core.")]
Json = Annotated[Path | None, Parameter(name="--json", help="Write everything that was found to this file.")]
Plot = Annotated[
    Path | None,
    Parameter(help="Draw it to this file: PNG, which needs the plot extra, or SVG of a scenario, which needs nothing."),
]


def simulate(
    model: Model = MODEL,
    *,
    device: Device = None,
    device_memory: DeviceMemory = None,
    replicas: Replicas = None,
    routing: Routing = "prefix",
    async_steps: AsyncSteps = True,
    compare: Compare = None,
    processes: Processes = None,
    json: Json = None,
    plot: Plot = None,
    config: ConfigFile = None,
    workload: Workload = WORKLOAD,
    day: ScenarioOptions = DAY,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
    parallel: ParallelOptions = PARALLEL,
) -> int:
    """Try out policies and cluster sizes on simulated devices, with the real scheduler and KV cache bookkeeping."""
    asked = EngineConfig(model, cache, scheduler, parallel)
    if day.scenario is not None:
        if compare is not None or processes is not None:
            name = "--compare" if compare is not None else "--processes"
            raise ConfigError(
                f"{name} has no effect with --scenario, which is one run of the usual policy; leave it out."
            )
        return _simulate_day(asked, day, workload, (device, device_memory), replicas, routing, async_steps, json, plot)
    from quire.cli.simulate_progress import ProgressLine
    from quire.cli.simulate_report import print_reports, write_json
    from quire.simulation.experiment import Experiment, run_experiment

    _check_outputs(json, plot)
    simulated, policies = find_device(device or "h200", device_memory), _policies(scheduler.scheduling_policy, compare)
    replicas = 1 if replicas is None else replicas
    experiment = Experiment(asked, workload, simulated, policies, replicas, routing, async_steps, processes)
    with ProgressLine() as line:
        reports = run_experiment(experiment, line.expect)
    print_reports(reports)
    if json is not None:
        write_json(reports, json)
    if plot is not None:
        from quire.cli.simulate_plot import draw_reports

        draw_reports(reports, plot)
    return 0


def _simulate_day(
    asked: EngineConfig,
    settings: ScenarioConfig,
    workload: WorkloadConfig,
    device: tuple[str | None, str | None],
    replicas: int | None,
    routing: RoutingStrategy,
    async_steps: bool,
    json: Path | None,
    plot: Path | None,
) -> int:
    from quire.cli.day_report import draw_day, print_day
    from quire.cli.simulate_progress import ProgressLine
    from quire.cli.simulate_report import write_json
    from quire.simulation.day.run import Day, run_day
    from quire.simulation.day.scenarios import CONTEXT, SCENARIOS

    _check_folders(json, plot)
    if plot is not None and plot.suffix != ".svg":
        raise ConfigError(f"--plot is {plot}, but a scenario is drawn as SVG; name a file that ends in .svg.")
    assert settings.scenario is not None
    scenario = SCENARIOS[settings.scenario]
    if asked.model.max_model_len is None:
        asked = replace(asked, model=replace(asked.model, max_model_len=CONTEXT))
    simulated = find_device(device[0] or scenario.device, device[1])
    instances = scenario.instances if replicas is None else replicas
    day = Day(asked, settings, workload, simulated, instances, routing, async_steps)
    with ProgressLine() as line:
        report = run_day(day, line.expect)
    print_day(report)
    if json is not None:
        write_json([report], json)
    if plot is not None:
        draw_day(report, plot)
    return 0


def _policies(first: Policy, compare: str | None) -> tuple[Policy, ...]:
    """Each policy once, in the order they were named."""
    others = [part.strip() for part in compare.split(",")] if compare is not None else []
    for name in others:
        check_known("quire.schedulers", "--compare", name, get_args(OwnPolicy))
    return tuple(dict.fromkeys([first, *others]))


def _check_outputs(json: Path | None, plot: Path | None) -> None:
    """Better now than after a long simulation."""
    _check_folders(json, plot)
    if plot is not None:
        from quire.observe.plots import check_matplotlib

        check_matplotlib()


def _check_folders(json: Path | None, plot: Path | None) -> None:
    for path in (json, plot):
        if path is not None and not path.expanduser().absolute().parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no folder {path.expanduser().absolute().parent}.")
