"""`quire simulate`: a workload on a simulated cluster, with the real scheduler and KV bookkeeping."""

from dataclasses import dataclass
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
from quire.config.scheduler import Policy
from quire.config.server import RoutingStrategy
from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean
from quire.simulation.workload_config import WorkloadConfig


@dataclass(frozen=True, slots=True)
class SimulatedModel(ModelConfig):
    """Which model to simulate."""

    model: str = "llama-8b"
    """A built-in shape (llama-8b, llama-70b, qwen3-0.6b, qwen3-30b-a3b, deepseek-v2-lite), or a checkpoint as for
    `quire plan`."""


def _section(title: str, order: int) -> Parameter:
    return Parameter(name="*", group=Group(title, sort_key=order))


MODEL, WORKLOAD = SimulatedModel(), WorkloadConfig()

Model = Annotated[SimulatedModel, _section("Model", 1)]
Workload = Annotated[WorkloadConfig, _section("Workload", 0.5)]
Device = Annotated[str, Parameter(help=f"Device to simulate: {', '.join(DEVICES)}.")]
DeviceMemory = Annotated[str | None, Parameter(help="Memory of that device instead of its own, such as 24GB or 80GiB.")]
Replicas = Annotated[int, Parameter(help="Copies of the model, each on its own device (or tensor parallel group).")]
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
Plot = Annotated[Path | None, Parameter(help="Draw it to this PNG file; needs the plot extra.")]


def simulate(
    model: Model = MODEL,
    *,
    device: Device = "h200",
    device_memory: DeviceMemory = None,
    replicas: Replicas = 1,
    routing: Routing = "prefix",
    async_steps: AsyncSteps = True,
    compare: Compare = None,
    processes: Processes = None,
    json: Json = None,
    plot: Plot = None,
    config: ConfigFile = None,
    workload: Workload = WORKLOAD,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
    parallel: ParallelOptions = PARALLEL,
) -> int:
    """Try out policies and cluster sizes on simulated devices, with the real scheduler and KV cache bookkeeping."""
    from quire.cli.simulate_progress import ProgressLine
    from quire.cli.simulate_report import print_reports, write_json
    from quire.simulation.experiment import Experiment, run_experiment

    _check_outputs(json, plot)
    asked = EngineConfig(model, cache, scheduler, parallel)
    simulated, policies = find_device(device, device_memory), _policies(scheduler.scheduling_policy, compare)
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


def _policies(first: Policy, compare: str | None) -> tuple[Policy, ...]:
    """Each policy once, in the order they were named."""
    known: dict[str, Policy] = {policy: policy for policy in get_args(Policy)}
    policies = [first]
    for name in (part.strip() for part in compare.split(",")) if compare is not None else ():
        if name not in known:
            raise ConfigError(
                f"--compare names {name!r}, but policies are {', '.join(known)}.{did_you_mean(name, known)}"
            )
        policies.append(known[name])
    return tuple(dict.fromkeys(policies))


def _check_outputs(json: Path | None, plot: Path | None) -> None:
    """Better now than after a long simulation."""
    for path in (json, plot):
        if path is not None and not path.expanduser().absolute().parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no folder {path.expanduser().absolute().parent}.")
    if plot is not None:
        from quire.observe.plots import check_matplotlib

        check_matplotlib()
