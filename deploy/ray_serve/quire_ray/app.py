"""The application, as Ray Serve starts it: `serve run quire_ray.app:build model=smollm2`, or a config file's args.

Clients → Serve's proxies → Gateway (quire's router) → Server (quire's server and its engines). With roles, Server holds
no model, and Prefill and Decode are its engines.
"""

import hmac
import os
from dataclasses import fields
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import LoggingConfig

from quire.config.observe import ObserveConfig
from quire_ray.engine import Engine
from quire_ray.gateway import Gateway
from quire_ray.scaling import autoscaling
from quire_ray.server import Server
from quire_ray.settings import Settings, read_args

_DRAIN = 300.0
"""Seconds that a replica may take to complete its answers, where drain_timeout does not say."""
_SLOW_READERS = 60.0
_SPARE = 15.0
_MOST_REQUESTS = 10_000
"""At a time, of a replica: servers' own queues refuse what is too much."""


def build(args: dict[str, Any]) -> Application:
    """Raises ConfigError with the line that `quire serve` would print."""
    settings = read_args(args, os.environ)
    member_key = settings.router["member_key"]
    secret = hmac.digest(member_key.encode(), b"engines of the application", "sha256").hex()
    roles: list[Application] = []
    if settings.has_roles:
        roles = [_engine(role, settings, secret) for role in ("prefill", "decode")]
    servers = _deployment(Server, "Server", settings, autoscaling("server", settings.scaling["server"])).bind(
        settings.server, member_key, secret, *roles
    )
    logs = {name: settings.server[name] for name in _LOGS if name in settings.server}
    gateway = serve.deployment(serve.ingress()(Gateway)).options(
        name="Gateway",
        num_replicas=settings.gateways,
        max_ongoing_requests=_MOST_REQUESTS,
        graceful_shutdown_timeout_s=_grace(settings),
    )
    return gateway.bind(settings.router, logs, servers)


_LOGS = tuple(each.name for each in fields(ObserveConfig))


def _engine(role: str, settings: Settings, secret: str) -> Application:
    scaled = autoscaling(role, settings.scaling[role])
    return _deployment(Engine, role.capitalize(), settings, scaled).bind(settings.server, role, secret)


def _deployment(kind: type, name: str, settings: Settings, scaled: AutoscalingConfig) -> serve.Deployment:
    return serve.deployment(kind).options(
        name=name,
        autoscaling_config=scaled,
        max_ongoing_requests=_MOST_REQUESTS,  # Serve warns of a target above it
        graceful_shutdown_timeout_s=_grace(settings),
        health_check_period_s=5.0,
        health_check_timeout_s=10.0,
        logging_config=LoggingConfig(enable_access_log=False),  # gateways ask every second where replicas are
    )


def _grace(settings: Settings) -> float:
    """Seconds from the order to end a replica to its end by force. What is not complete then goes on at another."""
    drain = settings.server.get("drain_timeout")
    readers = settings.server.get("slow_reader_timeout", _SLOW_READERS)
    return float(_DRAIN if drain is None else drain) + float(readers) + _SPARE
