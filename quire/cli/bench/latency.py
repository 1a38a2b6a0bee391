"""`quire bench latency`: one batch alone, again and again, in this process."""

from typing import Annotated

from cyclopts import Parameter

from quire.bench.report import new_report
from quire.cli.bench.outputs import OUTPUT, OutputOptions, tell
from quire.cli.bench.sections import changed_settings
from quire.cli.options import CACHE, MODEL, SCHEDULER, CacheOptions, ConfigFile, ModelOptions, SchedulerOptions
from quire.cli.starting import status
from quire.config.bounds import check
from quire.config.engine import EngineConfig

BatchSize = Annotated[int, Parameter(help="Sequences that begin together.")]
InputLen = Annotated[int, Parameter(help="Tokens of every prompt.")]
OutputLen = Annotated[int, Parameter(help="Tokens of every answer.")]
Warmups = Annotated[int, Parameter(help="Batches before those that count.")]
Iterations = Annotated[int, Parameter(help="Batches that count.")]


def latency(
    model: ModelOptions = MODEL,
    *,
    batch_size: BatchSize = 1,
    input_len: InputLen = 32,
    output_len: OutputLen = 128,
    warmups: Warmups = 2,
    iterations: Iterations = 10,
    output: OutputOptions = OUTPUT,
    config: ConfigFile = None,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
) -> int:
    """Run one batch of fixed size again and again; seconds of the whole and per token."""
    sizes = {"batch_size": batch_size, "input_len": input_len, "output_len": output_len, "iterations": iterations}
    for name, value in sizes.items():
        check(1 <= value <= 1 << 24, name, value, "1 or more", "leave it out for the usual")
    check(0 <= warmups <= 1000, "warmups", warmups, "from 0 to 1000", "2 are usual")
    asked = EngineConfig(model, cache, scheduler)
    with status(f"Loading {model.model} …"):
        from quire.bench.offline import OfflineBench

        bench = OfflineBench(asked)
    from quire.cli.bench.watching import Watching

    watching = Watching()
    watching.expect("", iterations, "batch")
    try:
        measures = bench.latency(batch_size, input_len, output_len, warmups, iterations, watching.tick)
    finally:
        watching.close()
        bench.close()
    title = f"{model.model}: {batch_size} × ({input_len} in + {output_len} out)"
    setting = sizes | {"warmups": warmups} | changed_settings(asked) | {"model": model.model}
    tell(new_report("latency", title, setting, measures), output)
    return 0
