"""From settings to a server that answers, and back to a free port."""

import gc

from quire.config.engine import EngineConfig
from quire.observe.logs import configure_logging
from quire.serving.begun_engines import begun_engines


def run_server(config: EngineConfig) -> int:
    """Serve until a signal; returns the exit code."""
    import uvloop

    configure_logging(config.observe)
    if config.server.api_server_count > 1:
        from quire.server.fronts.hub import Hub

        return uvloop.run(Hub(config).serve())
    gc.disable()  # until routes are made: all that a start makes stays
    return uvloop.run(_serve_alone(config))


async def _serve_alone(config: EngineConfig) -> int:
    async with begun_engines(config.server) as begun:
        from quire.server.front import Front  # while the engines import their own modules

        return await Front(config, begun=begun).serve()
