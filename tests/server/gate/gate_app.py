"""A small application behind the gate, for tests of what stands in front of routes."""

from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from quire.config.observe import ObserveConfig
from quire.observe.logs import RequestLog, request_id
from quire.server.drain import Drain
from quire.server.errors import exception_handlers
from quire.server.gate.account import Limits
from quire.server.gate.gate import Caps, guarded
from quire.server.gate.keys import Key, KeyRing, digest_of

ALICE, ADMIN, TINY = "alice-secret", "admin-secret", "tiny-secret"


@dataclass
class Seen:
    """What the gate told."""

    http: list[tuple[str, str, int]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


class Metrics:
    """Remembers what it is told."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def http(self, route: str, method: str, status: int, seconds: float) -> None:
        assert seconds >= 0
        self._seen.http.append((route, method, status))

    def refused(self, reason: str) -> None:
        self._seen.refusals.append(reason)


def ring() -> KeyRing:
    return KeyRing(
        [
            Key("alice", digest_of(ALICE.encode()), priority=3, models=frozenset({"m"})),
            Key("admin", digest_of(ADMIN.encode()), admin=True, shares_cache=True),
            Key("tiny", digest_of(TINY.encode()), Limits(requests_per_minute=2, tokens_per_minute=100, concurrency=1)),
        ]
    )


def told(request: Request | WebSocket) -> dict[str, Any]:
    caller = request.state.caller
    return {
        "tenant": caller.tenant, "priority": caller.priority, "salted": caller.cache_salt is not None,
        "models": sorted(caller.models) if caller.models is not None else None, "deadline": caller.deadline,
        "id": caller.request_id, "logged": request_id.get(), "running": caller.account.running,
        "headers": sorted(request.headers),
    }  # fmt: skip


async def who(request: Request) -> Response:
    return JSONResponse(told(request))


async def size(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def deaf(request: Request) -> Response:
    """Answers without reading."""
    return PlainTextResponse("ok")


async def fails(request: Request) -> Response:
    raise KeyError("swordfish")


async def stream(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_json(told(socket))
    await socket.close()


def routes() -> list[Route | WebSocketRoute]:
    return [
        Route("/health", deaf),
        Route("/ready", deaf),
        Route("/metrics", who),
        Route("/", who),
        Route("/docs", who),
        Route("/debug/profile", who, methods=["POST"]),
        Route("/tokenize", who, methods=["POST"]),
        Route("/v1/completions", who, methods=["POST"]),
        Route("/v1/messages", who, methods=["POST"]),
        Route("/v1/files/{file_id}", who),
        Route("/size", size, methods=["POST"]),
        Route("/fails", fails, methods=["GET", "POST"]),
        WebSocketRoute("/v1/stream", stream),
    ]


def application(
    *,
    keys: KeyRing | None = None,
    drain: Drain | None = None,
    seen: Seen | None = None,
    caps: Caps | None = None,
    origins: tuple[str, ...] = (),
    hosts: frozenset[str] | None = None,
) -> ASGIApp:
    return guarded(
        Starlette(routes=routes(), exception_handlers=exception_handlers()),
        keys=keys,
        drain=drain or Drain(),
        metrics=Metrics(seen or Seen()),
        log=RequestLog(ObserveConfig()),
        caps=caps,
        origins=origins,
        hosts=hosts,
    )
