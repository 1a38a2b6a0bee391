"""RootPath: all routes twice, and what only looks like one is another."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from quire.config.server import ServerConfig
from quire.core.errors import ConfigError
from quire.server.gate.root_path import RootPath


async def _said(request: Request) -> Response:
    return PlainTextResponse(request.url.path)


async def _socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("here")
    await websocket.close()


@pytest.fixture
def client() -> TestClient:
    routes = [Route("/", _said), Route("/v1/{name:path}", _said), WebSocketRoute("/v1/stream", _socket)]
    return TestClient(RootPath(Starlette(routes=routes), "/llm"), follow_redirects=False)


@pytest.mark.parametrize(
    ("asked", "found"), [("/v1/models", "/v1/models"), ("/llm/v1/models", "/v1/models"), ("/llm/", "/"), ("/", "/")]
)
def test_routes_are_there_with_and_without_it(client: TestClient, asked: str, found: str) -> None:
    answer = client.get(asked)
    assert (answer.status_code, answer.text) == (200, found)


@pytest.mark.parametrize("asked", ["/llmv1/models", "/llm/llm/v1/models", "/other/v1/models"])
def test_nothing_else_is_taken_away(client: TestClient, asked: str) -> None:
    assert client.get(asked).status_code == 404


def test_the_console_is_in_a_folder(client: TestClient) -> None:
    answer = client.get("/llm")
    assert (answer.status_code, answer.headers["location"]) == (307, "/llm/")


def test_sockets_too(client: TestClient) -> None:
    with client.websocket_connect("/llm/v1/stream") as socket:
        assert socket.receive_text() == "here"


@pytest.mark.parametrize("path", ["llm", "/llm/", "/", "", "/a b", "/a//b", "/a/../b", "/a?b"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(ConfigError, match="root-path"):
        ServerConfig(root_path=path)
