"""Hosts: a page whose name was made to point at the server is not served."""

import socket

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from quire.config.server import ServerConfig
from quire.server.gate.hosts import served_hosts
from tests.server.gate.gate_app import Seen, application


def client(seen: Seen | None = None, **settings: str) -> TestClient:
    return TestClient(application(seen=seen, hosts=served_hosts(ServerConfig(**settings), has_keys=False)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8000",
        "localhost.:8000",
        "127.0.0.1",
        "127.0.0.1:8000",
        "10.1.2.3:8000",  # a probe names the pod by its address
        "[::1]",
        "[::1]:8000",
        "[fe80::1]:8000",
    ],
)
def test_the_server_answers_for_itself(host: str) -> None:
    assert client().get("/metrics", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "[evil]", ":80", "é"],
)
def test_a_rebound_name_is_refused(host: str) -> None:
    seen = Seen()
    page = {"host": host.encode("latin-1"), "origin": f"http://{host}".encode("latin-1")}
    page["sec-fetch-site"] = b"same-origin"
    answer = client(seen).post("/v1/completions", headers=page)
    assert (answer.status_code, answer.json()["error"]["code"]) == (421, "misdirected_request")
    assert "--allowed-hosts" in answer.json()["error"]["message"]
    assert client(seen).get("/metrics", headers=page).status_code == 421
    with pytest.raises(WebSocketDenialResponse) as caught, client(seen).websocket_connect("/v1/stream", headers=page):
        pass
    assert caught.value.status_code == 421
    assert seen.refusals == ["host"] * 3


def test_names_can_be_allowed() -> None:
    allowed = client(allowed_hosts="quire.example.org, other")
    for host, status in (("Quire.example.org:443", 200), ("other", 200), ("localhost", 200), ("example.org", 421)):
        assert allowed.get("/metrics", headers={"host": host}).status_code == status
    assert client(allowed_hosts="*").get("/metrics", headers={"host": "evil.example"}).status_code == 200


def test_two_hosts_are_refused() -> None:
    twice = [("host", "localhost"), ("host", "evil.example")]
    assert client().get("/metrics", headers=twice).status_code == 400


def test_which_names_are_its_own() -> None:
    def hosts(*, has_keys: bool = False, **settings: str) -> frozenset[str] | None:
        return served_hosts(ServerConfig(**settings), has_keys=has_keys)  # type: ignore[arg-type]

    assert hosts(host="Box.local") == {"localhost", "box.local"}
    assert hosts(host="0.0.0.0") == {"localhost", socket.gethostname().lower()}
    assert hosts(uds="/run/quire.sock") is None
    assert hosts(has_keys=True) is None
    assert hosts(has_keys=True, allowed_hosts="a.org") == {"localhost", "127.0.0.1", "a.org"}
