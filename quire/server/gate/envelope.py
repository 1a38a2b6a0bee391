"""The envelope of every request: its id in the answer, the log and the errors, and what is counted when it is over.

The outermost layer: whatever goes wrong further in is answered here, in the shape clients read.
"""

import logging
import re
import secrets
import time
from typing import Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.observe.logs import RequestLog, request_id
from quire.server.errors import error_response, row_of

_log = logging.getLogger(__name__)

_HEADER = b"x-request-id"
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_SWITCHING = 101
_GONE = 499
"""For the log and the metrics: the client went away before it was answered."""
_STARTS = ("http.response.start", "websocket.http.response.start")


class HttpMetrics(Protocol):
    """What is told about requests."""

    def http(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is its template."""

    def refused(self, reason: str) -> None:
        """A request was turned away; `reason` is one of a few words."""


class Envelope:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, log: RequestLog) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        start = time.monotonic()
        identity = _identity(scope)
        scope.setdefault("state", {})["request_id"] = identity
        answer = _Answer(send, identity)
        token = request_id.set(identity)
        try:
            await self._app(scope, receive, answer.send)
        except Exception as error:
            await self._failed(error, answer, scope, receive)
        finally:
            self._count(scope, answer.status, time.monotonic() - start)
            request_id.reset(token)

    async def _failed(self, error: Exception, answer: "_Answer", scope: Scope, receive: Receive) -> None:
        if row_of(error).status >= 500:
            _log.exception("a request failed: %s", type(error).__name__)
        if answer.complete:
            return
        if answer.status is not None:
            raise error  # the answer has begun; only closing the connection can say that it is not whole
        response = error_response(error, answer.identity, scope["path"])
        await send_response(response, scope, receive, answer.send)

    def _count(self, scope: Scope, status: int | None, seconds: float) -> None:
        method = scope.get("method", "WEBSOCKET")
        path = getattr(scope.get("route"), "path", None) or "other"
        self._metrics.http(path, method, status or _GONE, seconds)
        client = scope.get("client")
        self._log.answered(method, scope["path"], status or _GONE, seconds, str(client[0]) if client else "")


class _Answer:
    """Stands in for `send`: adds the id, and remembers how far the answer has come."""

    def __init__(self, send: Send, identity: str) -> None:
        self.identity = identity
        self.status: int | None = None
        self.complete = False
        self._send = send

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in _STARTS or kind == "websocket.accept":
            self.status = message.get("status", _SWITCHING)
            headers = [(name, value) for name, value in message.get("headers", ()) if name.lower() != _HEADER]
            message = {**message, "headers": [*headers, (_HEADER, self.identity.encode())]}
        elif kind == "websocket.close" and self.status is None:
            self.status = 403  # what servers make of a socket that is closed before it was accepted
        self.complete = self.complete or kind == "websocket.close" or _is_last(message)
        await self._send(message)


async def send_response(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a socket that was not accepted yet; sockets are answered in full where the server can."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        return
    await response(scope, receive, send)


def _is_last(message: Message) -> bool:
    kinds = ("http.response.body", "websocket.http.response.body")
    return message["type"] in kinds and not message.get("more_body", False)


def _identity(scope: Scope) -> str:
    """The client's own id where it is one that can be logged as it stands, else a new one."""
    given = [value for name, value in scope["headers"] if name == _HEADER]
    if len(given) == 1 and _SANE_ID.fullmatch(given[0]):
        return str(given[0].decode("ascii"))
    return new_request_id()


def unique_id(scope: Scope) -> str:
    """The request's id where the server made it; one that its client chose is made unlike all others that run.

    Clients are free to send the same id twice, or another client's.
    """
    identity: str = scope["state"]["request_id"]
    if (_HEADER, identity.encode()) in scope["headers"]:
        return f"{identity}-{secrets.token_hex(8)}"
    return identity


def new_request_id() -> str:
    """32 characters, as many as vLLM's have: what keeps them in a column of that width can keep these."""
    return "req_" + secrets.token_hex(14)
