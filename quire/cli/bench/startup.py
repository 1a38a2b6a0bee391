"""`quire bench startup`: from the start of a process to its first token, in fresh processes."""

from typing import Annotated, Literal

from cyclopts import Parameter

from quire.bench.report import new_report
from quire.cli.bench.outputs import OUTPUT, OutputOptions, tell
from quire.cli.bench.sections import Repeats, changed_settings, check_repeats
from quire.cli.options import CACHE, MODEL, SCHEDULER, CacheOptions, ConfigFile, ModelOptions, SchedulerOptions
from quire.config.engine import EngineConfig

Of = Annotated[Literal["engine", "server"], Parameter(help="Start an engine as LLM does, or quire serve.")]


def startup(
    model: ModelOptions = MODEL,
    *,
    of: Of = "engine",
    repeats: Repeats = 5,
    output: OutputOptions = OUTPUT,
    config: ConfigFile = None,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
) -> int:
    """Start a process again and again; seconds until it is ready and until its first token, and of the parts."""
    check_repeats(repeats)
    settings = changed_settings(EngineConfig(model, cache, scheduler)) | {"model": model.model}

    from pathlib import Path
    from tempfile import TemporaryDirectory

    from quire.bench.startup import measure_engine, measure_server
    from quire.cli.bench.watching import Watching

    watching = Watching()
    watching.expect("", repeats, "start")
    try:
        if of == "engine":
            measures = measure_engine(settings, repeats, watching.tick)
        else:
            others = {name: value for name, value in settings.items() if name != "model"}
            with TemporaryDirectory() as folder:
                measures = measure_server(model.model, others, repeats, Path(folder, "server.log"), watching.tick)
    finally:
        watching.close()
    tell(new_report("startup", f"{model.model}: start of {'an engine' if of == 'engine' else 'quire serve'}",
                    settings | {"of": of}, measures), output)  # fmt: skip
    return 0
