"""Every error is one row of one table, in two shapes, and the unexpected says nothing but its id."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from quire.core.errors import (
    ConfigError,
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    RequestFailed,
    RequestTooLarge,
    Unavailable,
)
from quire.protocol.anthropic.body import ThreadUnsupported
from quire.server.errors import (
    BodyTooLarge,
    BodyTooSlow,
    Forbidden,
    HeadersTooLarge,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
    UnknownModel,
    UnsupportedMediaType,
    UrlTooLong,
    error_body,
    error_headers,
    exception_handlers,
    row_of,
)

TABLE: list[tuple[Exception, int, str, str | None]] = [
    (InvalidRequest("no"), 400, "invalid_request_error", None),
    (RequestTooLarge("no"), 400, "invalid_request_error", "context_length_exceeded"),
    (UnknownModel("no"), 404, "invalid_request_error", "model_not_found"),
    (NotFound("no"), 404, "invalid_request_error", "not_found"),
    (Unauthorized("no"), 401, "invalid_request_error", "invalid_api_key"),
    (Forbidden("no"), 403, "permission_error", "forbidden"),
    (MethodNotAllowed("no", allowed="GET"), 405, "invalid_request_error", "method_not_allowed"),
    (BodyTooLarge("no"), 413, "invalid_request_error", "request_too_large"),
    (BodyTooSlow("no"), 408, "timeout_error", "request_timeout"),
    (UrlTooLong("no"), 414, "invalid_request_error", "uri_too_long"),
    (UnsupportedMediaType("no"), 415, "invalid_request_error", "unsupported_media_type"),
    (HeadersTooLarge("no"), 431, "invalid_request_error", "headers_too_large"),
    (Overloaded("no", retry_after=2), 429, "rate_limit_error", "rate_limit_exceeded"),
    (Unavailable("no"), 503, "server_error", "service_unavailable"),
    (DeadlineExceeded("no"), 408, "timeout_error", "deadline_exceeded"),
    (RequestFailed("no"), 500, "server_error", "request_failed"),
    (ClientDisconnect(), 499, "invalid_request_error", "client_disconnected"),
]


@pytest.mark.parametrize(("error", "status", "kind", "code"), TABLE, ids=lambda value: type(value).__name__)
def test_the_table(error: Exception, status: int, kind: str, code: str | None) -> None:
    assert row_of(error).status == status
    told = error_body(error, "req_1", "/v1/completions")["error"]
    assert set(told) == {"message", "type", "param", "code"}
    assert (told["type"], told["code"]) == (kind, code)
    assert told["message"].startswith("no") or isinstance(error, ClientDisconnect)


@pytest.mark.parametrize("error", [KeyError("swordfish"), ConfigError("swordfish"), HTTPException(500, "swordfish")])
def test_the_unexpected_tells_its_id_alone(error: Exception) -> None:
    for path in ("/v1/completions", "/v1/messages"):
        body = str(error_body(error, "req_1", path))
        assert "req_1" in body
        assert "swordfish" not in body
    assert row_of(error).status == 500


def test_a_subclass_is_told_as_its_nearest_kind() -> None:
    class Picky(RequestTooLarge):
        pass

    assert row_of(Picky("x")) == row_of(RequestTooLarge("x"))


def test_fields_and_ids_are_named() -> None:
    assert error_body(InvalidRequest("no", field="top_p"), "r", "/")["error"]["param"] == "top_p"
    assert error_body(UnknownModel("no"), "r", "/")["error"]["param"] == "model"
    assert error_body(NotFound("no"), "r", "/")["error"]["param"] is None
    assert "req_7" in error_body(RequestFailed("the step threw"), "req_7", "/")["error"]["message"]


@pytest.mark.parametrize(
    ("path", "anthropic"),
    [
        ("/v1/messages", True), ("/v1/messages/count_tokens", True), ("/v1/messagesx", False),
        ("/v1/chat/completions", False), ("/", False),
    ],
)  # fmt: skip
def test_messages_are_answered_in_anthropics_shape(path: str, anthropic: bool) -> None:
    body = error_body(Overloaded("busy", retry_after=1), "req_1", path)
    if anthropic:
        inner = {"type": "rate_limit_error", "message": "busy"}
        assert body == {"type": "error", "error": inner, "request_id": "req_1"}
    else:
        assert set(body) == {"error"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequest("x"), "invalid_request_error"),
        (Unauthorized("x"), "authentication_error"),
        (Forbidden("x"), "permission_error"),
        (UnknownModel("x"), "not_found_error"),
        (BodyTooLarge("x"), "request_too_large"),
        (Unavailable("x"), "overloaded_error"),
        (ValueError("x"), "api_error"),
    ],
)
def test_anthropics_words(error: Exception, kind: str) -> None:
    assert error_body(error, "r", "/v1/messages")["error"]["type"] == kind


def test_anthropics_client_hears_that_there_are_no_threads() -> None:
    error = error_body(ThreadUnsupported(), "req-1", "/v1/messages")["error"]
    assert error["type"] == "invalid_request_error"
    assert error["details"] == {"error_code": "thread_unsupported_request"}


def test_headers_tell_what_to_do() -> None:
    assert error_headers(Overloaded("x", retry_after=1.2)) == {"retry-after": "2", "retry-after-ms": "1200"}
    assert error_headers(Unavailable("x", retry_after=0))["retry-after"] == "1"
    assert error_headers(Unauthorized("x"))["www-authenticate"].startswith("Bearer")
    assert error_headers(Unauthorized("x", page=True))["www-authenticate"].startswith("Basic")
    assert error_headers(MethodNotAllowed("x", allowed="GET, HEAD"))["allow"] == "GET, HEAD"
    assert error_headers(BodyTooLarge("x")) == {"connection": "close"}
    assert error_headers(DeadlineExceeded("x")) == {"x-should-retry": "false"}
    assert error_headers(InvalidRequest("x")) == {}


def app_with(handler: Callable[[Request], Awaitable[Response]], **sockets: Any) -> TestClient:
    routes = [Route("/v1/completions", handler, methods=["POST"]), Route("/v1/messages", handler, methods=["POST"])]
    more = [WebSocketRoute(f"/{name}", route) for name, route in sockets.items()]
    app = Starlette(routes=[*routes, *more], exception_handlers=exception_handlers())
    return TestClient(app, raise_server_exceptions=False)


def raising(error: Exception) -> Callable[[Request], Awaitable[Response]]:
    async def handler(request: Request) -> Response:
        raise error

    return handler


def test_routes_raise_and_clients_read() -> None:
    client = app_with(raising(InvalidRequest("top_p is 2", field="top_p")))
    answer = client.post("/v1/completions")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "top_p"
    assert client.post("/v1/messages").json()["type"] == "error"
    failed = app_with(raising(KeyError("swordfish"))).post("/v1/completions")
    assert failed.status_code == 500
    assert failed.json()["error"]["code"] == "internal_error"
    assert "swordfish" not in failed.text


def test_starlettes_own_errors_have_the_shape() -> None:
    client = app_with(raising(HTTPException(400, "a part has no name")))
    missing = client.get("/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert "/v1/nothing" in missing.json()["error"]["message"]
    wrong = client.get("/v1/completions")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["error"]["code"] == "method_not_allowed"
    bad = client.post("/v1/completions")
    assert (bad.status_code, bad.json()["error"]["message"]) == (400, "a part has no name")
    assert app_with(raising(HTTPException(413, "big"))).post("/v1/completions").status_code == 413


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("x" * 500), 1008),
        (Overloaded("busy", retry_after=1), 1013),
        (Unavailable("closing"), 1013),
        (RequestFailed("no"), 1011),
    ],
)
def test_a_socket_is_closed_with_a_reason(error: Exception, code: int) -> None:
    async def socket(connection: WebSocket) -> None:
        await connection.accept()
        raise error

    client = app_with(raising(error), stream=socket)
    with client.websocket_connect("/stream") as session, pytest.raises(WebSocketDisconnect) as caught:
        session.receive_text()
    assert caught.value.code == code
    assert 0 < len(caught.value.reason.encode()) <= 123
