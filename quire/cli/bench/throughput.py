"""`quire bench throughput`: many requests at once, in this process."""

from quire.bench.report import new_report
from quire.cli.bench.outputs import OUTPUT, OutputOptions, tell
from quire.cli.bench.sections import (
    DATASET,
    DatasetOptions,
    Repeats,
    changed_settings,
    check_repeats,
    plain_settings,
)
from quire.cli.options import CACHE, MODEL, SCHEDULER, CacheOptions, ConfigFile, ModelOptions, SchedulerOptions
from quire.cli.starting import status
from quire.config.engine import EngineConfig


def throughput(
    model: ModelOptions = MODEL,
    *,
    dataset: DatasetOptions = DATASET,
    repeats: Repeats = 1,
    output: OutputOptions = OUTPUT,
    config: ConfigFile = None,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
) -> int:
    """Give an engine all requests at once; tokens a second in and out, requests a second."""
    check_repeats(repeats)
    dataset.check_file()
    asked = EngineConfig(model, cache, scheduler)
    with status(f"Loading {model.model} …"):
        from quire.bench.offline import OfflineBench

        bench = OfflineBench(asked)
    from quire.cli.bench.watching import Watching

    watching = Watching()

    try:
        measures, seconds = bench.throughput(dataset, repeats, watching.outputs)
    finally:
        watching.close()
        bench.close()
    setting = plain_settings(dataset) | changed_settings(asked) | {"model": model.model, "seconds": seconds}
    tell(new_report("throughput", f"{model.model}: {dataset.dataset} requests, all at once", setting, measures), output)
    return 0
