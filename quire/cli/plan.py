"""`quire plan`: how much of a device's memory a model takes before it is loaded, and how to spread it over many."""

from typing import Annotated

from cyclopts import Parameter

from quire.cli.options import (
    CACHE,
    MODEL,
    PARALLEL,
    SCHEDULER,
    CacheOptions,
    ConfigFile,
    ModelOptions,
    ParallelOptions,
    SchedulerOptions,
)
from quire.config.devices import DEVICES, find_device
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.parallel import ParallelConfig
from quire.core.errors import ConfigError
from quire.simulation.goals import LatencyGoals
from quire.simulation.workload_config import WorkloadConfig

_DOES_NOT_FIT = 1
_MOST_GPUS = 1024

Device = Annotated[str, Parameter(help=f"Device to plan for: {', '.join(DEVICES)}.")]
DeviceMemory = Annotated[str | None, Parameter(help="Memory of that device instead of its own, such as 24GB or 80GiB.")]
SeqLen = Annotated[int | None, Parameter(help="Length of the sequences to count, in tokens. Unset: 4096 or less.")]
Json = Annotated[
    bool,
    Parameter(
        name="--json",
        negative="",
        show_default=False,
        help="Print one JSON object instead of tables. The exit code is 1 when the model does not fit.",
    ),
]
Find = Annotated[
    bool,
    Parameter(
        negative="",
        show_default=False,
        help="Instead, find how to spread the model over --gpus: the tensor and pipeline parallel sizes and replicas "
        "that serve the most requests within --ttft and --tpot, simulated.",
    ),
]
Gpus = Annotated[
    str | None, Parameter(help="With --find: how many of which device, such as 8xh100. Unset: 8 of --device.")
]
Ttft = Annotated[float, Parameter(help="With --find: milliseconds to the first token at most.")]
Tpot = Annotated[float, Parameter(help="With --find: milliseconds a token after it at most.")]
InputTokens = Annotated[str, Parameter(help="With --find: prompt lengths, as in quire simulate.")]
OutputTokens = Annotated[str, Parameter(help="With --find: answer lengths, as in quire simulate.")]
_USUAL_TTFT, _USUAL_TPOT, _USUAL_LENGTHS, _USUAL_GPUS = 500.0, 50.0, "sharegpt", 8


def plan(
    model: ModelOptions = MODEL,
    *,
    find: Find = False,
    gpus: Gpus = None,
    ttft: Ttft = _USUAL_TTFT,
    tpot: Tpot = _USUAL_TPOT,
    input_tokens: InputTokens = _USUAL_LENGTHS,
    output_tokens: OutputTokens = _USUAL_LENGTHS,
    device: Device = "h100",
    device_memory: DeviceMemory = None,
    seq_len: SeqLen = None,
    as_json: Json = False,
    config: ConfigFile = None,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
    parallel: ParallelOptions = PARALLEL,
) -> int:
    """Show how much of a device's memory a model takes, from its header alone."""
    from quire.cli.plan_report import plan_as_json, print_plan
    from quire.cli.planning import plan_checkpoint

    asked = EngineConfig(model, cache, scheduler, parallel)
    if find:
        _refuse(seq_len is not None, "--seq-len", "with --find, which counts by --input-tokens and --output-tokens")
        _refuse(parallel != ParallelConfig(), "--tensor-parallel-size", "with --find, which tries them all")
        number, name = _parse_gpus(gpus, device)
        goals = LatencyGoals(ttft, tpot)
        workload = WorkloadConfig(input_tokens=input_tokens, output_tokens=output_tokens)
        return _find(asked, find_device(name, device_memory), number, workload, goals, as_json=as_json)
    usual = (None, _USUAL_TTFT, _USUAL_TPOT, _USUAL_LENGTHS, _USUAL_LENGTHS)
    for flag, given, default in zip(_OF_FIND, (gpus, ttft, tpot, input_tokens, output_tokens), usual, strict=True):
        _refuse(given != default, flag, "without --find")
    result = plan_checkpoint(asked, find_device(device, device_memory), seq_len)
    if as_json:
        print(plan_as_json(result))
    else:
        print_plan(result)
    return 0 if result.fits else _DOES_NOT_FIT


_OF_FIND = ("--gpus", "--ttft", "--tpot", "--input-tokens", "--output-tokens")


def _refuse(given: bool, flag: str, why: str) -> None:
    """A setting that would be ignored is refused."""
    if given:
        raise ConfigError(f"{flag} has no effect {why}; leave it out.")


def _parse_gpus(text: str | None, device: str) -> tuple[int, str]:
    """`8xh100` as a number and a name."""
    if text is None:
        return _USUAL_GPUS, device
    number, _, name = text.lower().partition("x")
    if not number.strip().isdecimal() or not 1 <= int(number) <= _MOST_GPUS or not name.strip():
        raise ConfigError(
            f"--gpus is {text!r}, but it must be a number from 1 to {_MOST_GPUS}, an x and a device "
            f"({', '.join(DEVICES)}), such as 8xh100."
        )
    return int(number), name.strip()


def _find(
    asked: EngineConfig,
    device: DeviceFacts,
    number: int,
    workload: WorkloadConfig,
    goals: LatencyGoals,
    *,
    as_json: bool,
) -> int:
    from quire.cli.layout_report import layouts_as_json, print_layouts
    from quire.simulation.experiment import find_model
    from quire.simulation.layouts import best_of, find_layouts

    model = find_model(asked.model.model, asked.model.revision)
    layouts = list(find_layouts(asked, model, device, number, workload, goals))
    if as_json:
        print(layouts_as_json(layouts, goals))
    else:
        print_layouts(layouts, model.name, device.name, goals)
    return _DOES_NOT_FIT if best_of(layouts) is None else 0
