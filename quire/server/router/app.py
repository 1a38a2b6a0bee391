"""The application of a router: its own routes, everything else relayed, and the gate in front."""

from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from quire.config.observe import ObserveConfig
from quire.observe.logs import RequestLog
from quire.observe.router_metrics import RouterMetrics
from quire.router.router import Router
from quire.server.drain import Drain
from quire.server.errors import exception_handlers
from quire.server.gate.gate import Caps, guarded
from quire.server.gate.hosts import served_hosts
from quire.server.gate.keys import KeyRing
from quire.server.router.credentials import KeepCredentials
from quire.server.router.own_routes import ROUTES
from quire.server.router.relayed import relay
from quire.server.router.socket import relay_socket

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_MEBIBYTE, _KIBIBYTE = 2**20, 2**10


def make_router_app(
    router: Router, keys: KeyRing | None, drain: Drain, metrics: RouterMetrics, observe: ObserveConfig
) -> ASGIApp:
    """Everything behind one entry; `keys` None lets everyone in."""
    config = router.config
    routes = [*ROUTES, WebSocketRoute("/{path:path}", relay_socket), Route("/{path:path}", relay, methods=_METHODS)]
    app = Starlette(routes=routes, exception_handlers=exception_handlers())
    app.state.router = router
    app.state.drain = drain
    app.state.metrics = metrics
    app.state.has_keys = keys is not None
    guarded_app = guarded(
        app,
        keys=keys,
        drain=drain,
        metrics=metrics,
        log=RequestLog(observe),
        caps=Caps(body_bytes=int(config.max_body_mb * _MEBIBYTE), header_bytes=int(config.max_header_kb * _KIBIBYTE)),
        origins=config.origins(),
        hosts=served_hosts(config, has_keys=keys is not None),
    )
    return KeepCredentials(guarded_app) if keys is None else guarded_app
