"""From an exception to an HTTP answer: one table of statuses, types and codes, and the shapes that clients read.

OpenAI's shape is everybody's; routes under /v1/messages answer in Anthropic's, those under /api in Ollama's, and
llama.cpp's in its own. What was not raised on purpose is told by its request's id alone: its own words may carry a
prompt, a path or a key.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler
from starlette.websockets import WebSocket, WebSocketState

from quire.core.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    QuireError,
    RequestFailed,
    RequestTooLarge,
    StillBusy,
    Unavailable,
)
from quire.protocol.anthropic.body import ThreadUnsupported
from quire.server.store.limits import StoreFull

_ANTHROPIC = "/v1/messages"
_OLLAMA = "/api/"
_LLAMA_CPP = ("/completion", "/infill", "/props")
_BASIC = 'Basic realm="quire: any name, and a key as the password", charset="UTF-8"'
_BEARER = 'Bearer realm="quire"'


class UnknownModel(InvalidRequest):
    """The request asks for a model that is not here, or not for its key."""

    def __init__(self, message: str, *, field: str | None = "model") -> None:
        super().__init__(message, field=field)


class NotFound(QuireError):
    """There is no such route, or no such thing under it."""


class Unauthorized(QuireError):
    """The request carries no key, or one that opens nothing; a `page` is asked for by a person in a browser."""

    def __init__(self, message: str, *, page: bool = False) -> None:
        super().__init__(message)
        self.page = page


class Forbidden(QuireError):
    """The key is good, but not for this."""


class Misdirected(QuireError):
    """The request is for a host whose name is not the server's."""


class MethodNotAllowed(QuireError):
    """The route has other methods; `allowed` lists them as in `GET, HEAD`."""

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class BodyTooLarge(QuireError):
    """The body is larger than the server takes."""


class BodyTooSlow(QuireError):
    """The body did not come in time."""


class UnsupportedMediaType(QuireError):
    """The body is of a kind that the route does not read."""


class HeadersTooLarge(QuireError):
    """The headers are more, or longer, than the server takes."""


class UrlTooLong(QuireError):
    """The address is longer than the server takes."""


@dataclass(frozen=True, slots=True)
class Row:
    """How one kind of error is told."""

    status: int
    type: str = "invalid_request_error"
    code: str | None = None


_ROWS: Mapping[type[BaseException], Row] = {
    RequestTooLarge: Row(400, code="context_length_exceeded"),
    UnknownModel: Row(404, code="model_not_found"),
    ThreadUnsupported: Row(400, code="thread_unsupported_request"),
    InvalidRequest: Row(400),
    NotFound: Row(404, code="not_found"),
    Unauthorized: Row(401, code="invalid_api_key"),
    Forbidden: Row(403, "permission_error", "forbidden"),
    MethodNotAllowed: Row(405, code="method_not_allowed"),
    BodyTooLarge: Row(413, code="request_too_large"),
    BodyTooSlow: Row(408, "timeout_error", "request_timeout"),
    UrlTooLong: Row(414, code="uri_too_long"),
    UnsupportedMediaType: Row(415, code="unsupported_media_type"),
    Misdirected: Row(421, code="misdirected_request"),
    HeadersTooLarge: Row(431, code="headers_too_large"),
    Overloaded: Row(429, "rate_limit_error", "rate_limit_exceeded"),
    StillBusy: Row(409, code="conflict"),
    StoreFull: Row(507, "server_error", "insufficient_storage"),
    Unavailable: Row(503, "server_error", "service_unavailable"),
    DeadlineExceeded: Row(408, "timeout_error", "deadline_exceeded"),
    RequestFailed: Row(500, "server_error", "request_failed"),
    ClientDisconnect: Row(499, code="client_disconnected"),  # nobody reads it but the log and the metrics
}
_UNEXPECTED = Row(500, "server_error", "internal_error")
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}
# What is left of these requests lies unread on the connection, which is of no further use.
_CLOSING = (BodyTooLarge, BodyTooSlow, HeadersTooLarge, UrlTooLong)


def row_of(error: BaseException) -> Row:
    """The table's row for an exception, by its nearest class."""
    return next((_ROWS[kind] for kind in type(error).__mro__ if kind in _ROWS), _UNEXPECTED)


def error_object(error: BaseException, request_id: str) -> dict[str, Any]:
    """The inside of OpenAI's error object: message, type, param and code."""
    row = row_of(error)
    return {
        "message": _message(error, row, request_id),
        "type": row.type,
        "param": error.field if isinstance(error, InvalidRequest) else None,
        "code": row.code,
    }


def error_body(error: BaseException, request_id: str, path: str) -> dict[str, Any]:
    """A whole error answer in the shape of its route."""
    told = error_object(error, request_id)
    if path.startswith(_OLLAMA):
        return {"error": told["message"]}
    if path in _LLAMA_CPP:
        return {"error": {**told, "code": row_of(error).status}}
    if not speaks_anthropic(path):
        return {"error": told}
    kind = _ANTHROPIC_TYPES.get(row_of(error).status, "invalid_request_error")
    inside: dict[str, Any] = {"type": kind, "message": told["message"]}
    if isinstance(error, ThreadUnsupported):
        inside["details"] = {
            "error_code": told["code"]
        }  # Anthropic's client goes on without threads when it reads this
    return {"type": "error", "error": inside, "request_id": request_id}


def error_response(error: BaseException, request_id: str, path: str) -> Response:
    """The answer to a request that ends in `error`."""
    return JSONResponse(error_body(error, request_id, path), row_of(error).status, headers=error_headers(error))


def error_headers(error: BaseException) -> dict[str, str]:
    """What beside its body tells a client what to do about an error."""
    headers: dict[str, str] = {}
    if isinstance(error, Overloaded | Unavailable):
        # Whole seconds, rounded up: a client that is back too early is only refused again.
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
        headers["retry-after-ms"] = str(max(1, math.ceil(error.retry_after * 1000)))
    if isinstance(error, Unauthorized):
        # Browsers ask their user for a password on Basic; a script that was refused should not make them do so.
        headers["www-authenticate"] = _BASIC if error.page else _BEARER
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = error.allowed
    if isinstance(error, DeadlineExceeded):
        headers["x-should-retry"] = "false"  # the OpenAI and Anthropic clients would retry any 408
    if isinstance(error, _CLOSING):
        headers["connection"] = "close"
    return headers


def speaks_anthropic(path: str) -> bool:
    return path == _ANTHROPIC or path.startswith(_ANTHROPIC + "/")


def exception_handlers() -> dict[Any, ExceptionHandler]:
    """For Starlette: what routes raise, what its router raises, and everything else."""
    # One handler for both kinds of connection, which Starlette's type for handlers has no word for.
    handler = cast(ExceptionHandler, _answer)
    return dict.fromkeys((HTTPException, QuireError, ClientDisconnect, Exception), handler)


async def _answer(connection: Request | WebSocket, raised: Exception) -> Response | None:
    error = _from_starlette(raised, connection) if isinstance(raised, HTTPException) else raised
    if isinstance(connection, WebSocket):
        await _close(connection, error)
        return None
    return error_response(error, request_id_of(connection.scope), connection.scope["path"])


def request_id_of(scope: Mapping[str, Any]) -> str:
    """The id that the gate gave a request; routes without a gate in front have none."""
    return str(scope.get("state", {}).get("request_id", ""))


async def _close(socket: WebSocket, error: Exception) -> None:
    """1008 is the client's doing, 1011 the server's, 1013 asks to come back later (RFC 6455)."""
    if socket.application_state is WebSocketState.DISCONNECTED:
        return
    status = row_of(error).status
    code = 1013 if status in (429, 503) else 1011 if status >= 500 else 1008
    # A close frame has room for 123 bytes of reason.
    reason = _message(error, row_of(error), request_id_of(socket.scope)).encode()[:120].decode(errors="ignore")
    await socket.close(code, reason)


def _message(error: BaseException, row: Row, request_id: str) -> str:
    if row is _UNEXPECTED:
        return f"the server failed to answer this request; its log says more about request {request_id}."
    message = str(error) or type(error).__name__
    return f"{message} (request {request_id})" if row.status == 500 else message


def _from_starlette(error: HTTPException, connection: Request | WebSocket) -> Exception:
    """Starlette's own errors in our words."""
    path = str(connection.scope["path"])[:200]
    if error.status_code == 404:
        return NotFound(f"there is nothing at {path!r}; /docs lists what there is.")
    if error.status_code == 405:
        method, allowed = connection.scope["method"], (error.headers or {}).get("Allow", "")
        return MethodNotAllowed(f"{path!r} has no method {method}; it has {allowed or 'others'}.", allowed=allowed)
    if error.status_code == 413:
        return BodyTooLarge(str(error.detail))
    if 400 <= error.status_code < 500:
        return InvalidRequest(str(error.detail))
    return error
