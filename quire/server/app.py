"""The application: every route, and the gate in front of them."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from quire.config.engine import EngineConfig
from quire.core.version import QUIRE_VERSION
from quire.observe.logs import RequestLog
from quire.server import anthropic, llama_cpp, status
from quire.server.batches.desk import BatchDesk
from quire.server.cohere import embed as cohere_embed
from quire.server.cohere import rerank
from quire.server.console.routes import console_routes
from quire.server.errors import exception_handlers
from quire.server.gate.gate import Caps, guarded
from quire.server.gate.hosts import served_hosts
from quire.server.gate.keys import KeyRing
from quire.server.gate.root_path import RootPath
from quire.server.journaled import Journaling
from quire.server.ollama import answers as ollama_answers
from quire.server.ollama import embed as ollama_embed
from quire.server.ollama import models as ollama_models
from quire.server.openai import (
    audio,
    batches,
    chat,
    classify,
    completions,
    embeddings,
    files,
    models,
    pooling,
    score,
    tokenize,
)
from quire.server.openapi import openapi_document
from quire.server.operation import Operation
from quire.server.responses import conversation_routes
from quire.server.responses import routes as responses
from quire.server.serving import Serving
from quire.server.vllm import routes as vllm
from quire.server.websocket import PATH as STREAM
from quire.server.websocket import ReadCall, StreamSocket

OPERATIONS: tuple[Operation, ...] = (
    *chat.OPERATIONS,
    *completions.OPERATIONS,
    *responses.OPERATIONS,
    *conversation_routes.OPERATIONS,
    *anthropic.OPERATIONS,
    *embeddings.OPERATIONS,
    *cohere_embed.OPERATIONS,
    *score.OPERATIONS,
    *rerank.OPERATIONS,
    *classify.OPERATIONS,
    *pooling.OPERATIONS,
    *audio.OPERATIONS,
    *tokenize.OPERATIONS,
    *models.OPERATIONS,
    *files.OPERATIONS,
    *batches.OPERATIONS,
    *vllm.OPERATIONS,
    *ollama_answers.OPERATIONS,
    *ollama_embed.OPERATIONS,
    *ollama_models.OPERATIONS,
    *llama_cpp.OPERATIONS,
    *status.OPERATIONS,
)
_READERS: dict[str, ReadCall] = {
    "/v1/chat/completions": chat.read_call,
    "/v1/completions": completions.read_call,
    "/v1/responses": responses.read_call,
    "/v1/messages": anthropic.read_call,
}
"""What a WebSocket can start."""
_DOCUMENT = "/openapi.json"
_MEBIBYTE, _KIBIBYTE = 2**20, 2**10


def make_app(serving: Serving, stored: BatchDesk, keys: KeyRing | None, config: EngineConfig) -> ASGIApp:
    """Everything behind one entry; `keys` None lets everyone in."""
    server = config.server
    app = Starlette(routes=_routes(server.enable_docs), exception_handlers=exception_handlers())
    app.state.serving = serving
    app.state.batches = stored
    serving.metrics.add_routes(route.path for route in app.routes if isinstance(route, Route | WebSocketRoute))
    caps = Caps(body_bytes=int(server.max_body_mb * _MEBIBYTE), header_bytes=int(server.max_header_kb * _KIBIBYTE))
    whole = guarded(
        Journaling(app),
        keys=keys,
        drain=serving.drain,
        metrics=serving.metrics,
        log=RequestLog(config.observe),
        caps=caps,
        origins=server.origins(),
        hosts=served_hosts(server, has_keys=keys is not None),
    )
    return whole if server.root_path is None else RootPath(whole, server.root_path)


def _routes(with_docs: bool) -> list[BaseRoute]:
    routes: list[BaseRoute] = list(_by_path(OPERATIONS))
    routes.append(WebSocketRoute(STREAM, _stream))
    hidden = frozenset() if with_docs else frozenset({"/docs"})
    routes.extend(route for route in console_routes() if route.path not in hidden)
    if with_docs:
        routes.append(Route(_DOCUMENT, _openapi, methods=["GET"]))
    return routes


async def _openapi(request: Request) -> Response:
    return JSONResponse(_document())


@cache
def _document() -> dict[str, Any]:
    return openapi_document(OPERATIONS, QUIRE_VERSION)


def _by_path(operations: Iterable[Operation]) -> Iterator[Route]:
    """One route a path, so that a wrong method is told which ones there are."""
    found: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        found.setdefault(operation.path, {})[operation.method] = operation
    for path, methods in found.items():
        yield Route(path, _Methods(methods).answer, methods=list(methods))


class _Methods:
    """The operations of one path."""

    def __init__(self, operations: Mapping[str, Operation]) -> None:
        self._operations = operations

    async def answer(self, request: Request) -> Response:
        # HEAD is what GET says of itself
        operation = self._operations[request.method if request.method != "HEAD" else "GET"]
        return await operation.handler(request)


async def _stream(socket: WebSocket) -> None:
    await StreamSocket(socket, _READERS).run()
