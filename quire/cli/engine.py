"""`quire engine`: an engine for servers on other hosts."""

from typing import Annotated

from cyclopts import Parameter

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


def engine(
    model: ModelOptions = MODEL,
    *,
    listen: Annotated[str, Parameter(help="Where to listen: tcp://host:port, tls://host:port or unix:///path.")],
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
    parallel: ParallelOptions = PARALLEL,
    server: ServerOptions = SERVER,
    observe: ObserveOptions = OBSERVE,
    config: ConfigFile = None,
) -> int:
    """Run an engine that servers on other hosts use: `quire serve --engines tcp://this-host:port`.

    Both sides give the same --engine-secret-file. A tls:// address uses --ssl-certfile and --ssl-keyfile.
    """
    from quire.serving.run_engine import run_engine

    return run_engine(EngineConfig(model, cache, scheduler, parallel, server, observe), listen)
