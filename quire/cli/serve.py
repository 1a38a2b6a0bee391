"""`quire serve`: the HTTP server."""

from quire.cli.options import (
    CACHE,
    LORA,
    MODEL,
    MULTIMODAL,
    OBSERVE,
    PARALLEL,
    PARSERS,
    SCHEDULER,
    SERVER,
    CacheOptions,
    ConfigFile,
    LoraOptions,
    ModelOptions,
    MultimodalOptions,
    ObserveOptions,
    ParallelOptions,
    ParserOptions,
    SchedulerOptions,
    ServerOptions,
)
from quire.config.engine import EngineConfig


def serve(
    model: ModelOptions = MODEL,
    *,
    parsers: ParserOptions = PARSERS,
    lora: LoraOptions = LORA,
    multimodal: MultimodalOptions = MULTIMODAL,
    cache: CacheOptions = CACHE,
    scheduler: SchedulerOptions = SCHEDULER,
    parallel: ParallelOptions = PARALLEL,
    server: ServerOptions = SERVER,
    observe: ObserveOptions = OBSERVE,
    config: ConfigFile = None,
) -> int:
    """Serve a model over HTTP, as OpenAI's and Anthropic's clients expect it; the console is at /."""
    asked = EngineConfig(model, cache, scheduler, parallel, server, observe, parsers, lora, multimodal)
    if parallel.node_rank:
        from quire.serving.run_node import run_node

        return run_node(asked)
    from quire.server.run import run_server

    return run_server(asked)
