"""`quire plan`: how much of a device's memory a model takes, before anything is downloaded or loaded."""

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

_DOES_NOT_FIT = 1

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


def plan(
    model: ModelOptions = MODEL,
    *,
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
    result = plan_checkpoint(asked, find_device(device, device_memory), seq_len)
    if as_json:
        print(plan_as_json(result))
    else:
        print_plan(result)
    return 0 if result.fits else _DOES_NOT_FIT
