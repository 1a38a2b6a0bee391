"""/v1/stream closes when its key is revoked, and what it had running ends."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.websockets import WebSocket, WebSocketDisconnect

from quire.config.observe import ObserveConfig
from quire.observe.logs import RequestLog
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.drain import Drain
from quire.server.gate.gate import guarded
from quire.server.gate.keys import Key, KeyRing, digest_of
from quire.server.websocket import PATH, StreamSocket
from tests.server.gate.gate_app import ADMIN, ALICE, Metrics, Seen, ring


class Endless:
    """A generation that goes on until it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = 0

    async def accepted(self) -> None:
        pass

    async def deltas(self) -> AsyncIterator[list[Any]]:
        while True:
            await asyncio.sleep(0.005)
            yield []

    def cancel(self) -> None:
        self.cancelled += 1


async def read_call(body: object, serving: Any, caller: Caller) -> Call:
    return SimpleNamespace(writer=SimpleNamespace(opening=list), ignored=())  # type: ignore[return-value]


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture
def keys() -> KeyRing:
    return ring()


@pytest.fixture
def client(endless: Endless, keys: KeyRing) -> Iterator[TestClient]:
    async def stream(socket: WebSocket) -> None:
        await StreamSocket(socket, {"/v1/completions": read_call}).run()

    async def start(call: Call, caller: Caller) -> Endless:
        return endless

    drain = Drain()
    app = Starlette(routes=[WebSocketRoute(PATH, stream)])
    app.state.serving = SimpleNamespace(drain=drain, open=start)
    log = RequestLog(ObserveConfig())
    with TestClient(guarded(app, keys=keys, drain=drain, metrics=Metrics(Seen()), log=log)) as client:
        yield client


def begin(session: WebSocketTestSession) -> None:
    """Returns once the generation runs."""
    session.send_json({"type": "start", "id": "a", "url": "/v1/completions", "body": {}})
    session.send_json({"type": "start", "id": "a", "url": "/v1/completions", "body": {}})
    assert "one that no running generation has" in session.receive_json()["error"]["message"]


def connected(client: TestClient, key: str) -> WebSocketTestSession:
    return client.websocket_connect(PATH, headers={"authorization": f"Bearer {key}"})


def test_a_revoked_key_closes_its_sockets_and_no_others(client: TestClient, keys: KeyRing, endless: Endless) -> None:
    with connected(client, ALICE) as alice, connected(client, ADMIN) as admin:
        begin(alice)
        left = [Key("admin", digest_of(ADMIN.encode()), admin=True, shares_cache=True)]
        assert client.portal is not None
        client.portal.call(keys.replace, left)
        with pytest.raises(WebSocketDisconnect) as caught:
            alice.receive_json()
        assert caught.value.code == 1008
        assert "revoked" in caught.value.reason
        begin(admin)
    assert endless.cancelled == 2, "one was revoked, one had its client leave"
