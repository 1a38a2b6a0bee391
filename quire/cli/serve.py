"""`quire serve`: takes every setting and checks it; the server itself is not built yet."""

import sys

from quire.cli.options import (
    CACHE,
    MODEL,
    OBSERVE,
    PARALLEL,
    SCHEDULER,
    SERVER,
    CacheOptions,
    ConfigFile,
    ModelOptions,
    ObserveOptions,
    ParallelOptions,
    SchedulerOptions,
    ServerOptions,
)
from quire.config.engine import EngineConfig

_NOT_BUILT = 1


def serve(
    model: ModelOptions = MODEL,
    *,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
    parallel: ParallelOptions = PARALLEL,
    server: ServerOptions = SERVER,
    observe: ObserveOptions = OBSERVE,
    config: ConfigFile = None,
) -> int:
    """Serve a model over HTTP."""
    asked = EngineConfig(model, cache, scheduler, parallel, server, observe)
    print(
        f"quire: cannot serve {asked.model.model}: the settings are fine, but the HTTP server is not built yet; "
        "`quire chat`, `quire complete` and `quire run-batch` run models.",
        file=sys.stderr,
    )
    return _NOT_BUILT
