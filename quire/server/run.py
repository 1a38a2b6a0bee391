"""From settings to a server that answers, and back to a free port."""

from quire.config.engine import EngineConfig
from quire.observe.logs import configure_logging


def run_server(config: EngineConfig) -> int:
    """Serve until a signal; returns the exit code."""
    import uvloop

    configure_logging(config.observe)
    if config.server.api_server_count > 1:
        from quire.server.fronts.hub import Hub

        return uvloop.run(Hub(config).serve())
    from quire.server.front import Front

    return uvloop.run(Front(config).serve())
