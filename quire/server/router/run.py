"""From a router's settings to one that answers, and back to a free port."""

import logging
from contextlib import closing
from pathlib import Path

from quire.config.observe import ObserveConfig
from quire.config.router import RouterConfig
from quire.observe.logs import configure_logging
from quire.observe.router_metrics import RouterMetrics
from quire.router.router import Router
from quire.server.drain import Drain
from quire.server.gate.key_source import KeySource
from quire.server.listen.address import bind, url_of
from quire.server.listen.listen import Listener
from quire.server.router.app import make_router_app

_log = logging.getLogger(__name__)


def run_router(config: RouterConfig, observe: ObserveConfig) -> int:
    """Route until a signal; returns the exit code."""
    import uvloop

    configure_logging(observe)
    return uvloop.run(_route(config, observe))


async def _route(config: RouterConfig, observe: ObserveConfig) -> int:
    keys = KeySource(config.api_key, None if config.keys is None else Path(config.keys))
    metrics = RouterMetrics(("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"))
    with closing(bind(config)) as listening:
        router, drain = Router(config, metrics), Drain()
        await router.start()
        try:
            listener = Listener(
                make_router_app(router, keys.ring, drain, metrics, observe),
                config,
                drain,
                on_reload=keys.reload,
                count_connections=lambda here: _counted(metrics, here),
            )
            url = url_of(listening, config)
            _log.info("routing on %s to %d members by %s", url, len(router.members), config.routing)
            return await listener.run(listening)
        finally:
            await router.close()


def _counted(metrics: RouterMetrics, here: int) -> int:
    metrics.connections(here)
    return here
