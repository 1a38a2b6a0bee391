"""The gate: who comes in, as whom, with how much, and what everybody is told about it."""

import asyncio
import base64
import logging

import httpx
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.types import Receive, Scope, Send

from quire.config.observe import ObserveConfig
from quire.observe.logs import RequestLog
from quire.server.drain import Drain
from quire.server.gate.gate import Caps, guarded
from tests.server.gate.gate_app import ADMIN, ALICE, TINY, Metrics, Seen, application, ring


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def basic(key: str, name: str = "anyone") -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{key}".encode()).decode()}


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def client(seen: Seen) -> TestClient:
    return TestClient(application(keys=ring(), seen=seen))


@pytest.fixture
def open_client(seen: Seen) -> TestClient:
    return TestClient(application(seen=seen))


GUARDED = [
    ("GET", "/metrics"), ("GET", "/"), ("GET", "/docs"), ("POST", "/tokenize"), ("POST", "/v1/completions"),
    ("GET", "/v1/files/1"), ("GET", "/nothing"), ("POST", "/health/"), ("GET", "/health/x"), ("GET", "//health"),
    ("GET", "/ready/"), ("GET", "//ready"),
    ("GET", "/Health"), ("OPTIONS", "/v1/completions"), ("GET", "/v1/completions?x=/health"),
    ("POST", "/debug/profile"), ("HEAD", "/metrics"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_every_path_but_those_of_probes_needs_a_key(client: TestClient, seen: Seen, method: str, path: str) -> None:
    answer = client.request(method, path, headers={"host": "/health"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["x-request-id"]
    assert seen.refusals == ["key"]
    if method != "HEAD":
        assert answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_probes_need_none(client: TestClient, path: str) -> None:
    assert client.get(path).text == "ok"
    assert client.get(f"{path}?x=1", headers=bearer("wrong")).status_code == 200


def test_without_keys_everybody_is_the_default_tenant(open_client: TestClient) -> None:
    who = open_client.post("/v1/completions", headers=bearer("whatever")).json()
    assert (who["tenant"], who["priority"], who["salted"], who["models"]) == ("default", None, False, None)


@pytest.mark.parametrize(
    "headers",
    [
        bearer(ALICE),
        {"Authorization": f"bearer   {ALICE} "},
        {"x-api-key": ALICE},
        {"X-API-Key": ALICE},
        basic(ALICE),
        basic(ALICE, ""),
    ],
)
def test_a_key_is_sent_in_any_of_these(client: TestClient, headers: dict[str, str]) -> None:
    who = client.post("/v1/completions", headers=headers).json()
    assert (who["tenant"], who["priority"], who["salted"], who["models"]) == ("alice", 3, True, ["m"])
    assert not {"authorization", "x-api-key"} & set(who["headers"]), "routes never see a key"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer(ALICE[:-1]),
        bearer(ALICE + "x"),
        {"authorization": ALICE},
        {"authorization": f"Token {ALICE}"},
        {"authorization": "Basic !!!"},
        {"authorization": "Basic " + base64.b64encode(ALICE.encode()).decode()},
        basic(":" + ALICE),
        {"x-api-key": ""},
        {"authorization": "Bearer wrong", "x-api-key": ALICE},
        {"sec-websocket-protocol": f"quire.key.{ALICE}"},
    ],
)
def test_nothing_else_opens(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.post("/v1/completions", headers=headers)
    assert answer.status_code == 401
    assert ALICE not in answer.text


@pytest.mark.parametrize("key", [b"\xff\xfe", "ключ".encode(), "é".encode("latin-1"), b"x" * 5000])
def test_odd_bytes_are_just_wrong(client: TestClient, key: bytes) -> None:
    assert client.post("/v1/completions", headers={b"authorization": b"Bearer " + key}).status_code == 401
    assert client.post("/v1/completions", headers={b"x-api-key": key}).status_code == 401


def test_two_keys_are_refused_even_if_one_is_good(client: TestClient) -> None:
    twice = [("authorization", "Bearer wrong"), ("authorization", f"Bearer {ALICE}")]
    answer = client.post("/v1/completions", headers=twice)
    assert answer.status_code == 400
    assert "2 times" in answer.json()["error"]["message"]


def test_messages_are_refused_in_anthropics_shape(client: TestClient) -> None:
    answer = client.post("/v1/messages")
    assert answer.status_code == 401
    body = answer.json()
    assert body["type"] == "error"
    assert body["error"]["type"] == "authentication_error"
    assert body["request_id"] == answer.headers["x-request-id"]


def test_a_browser_is_asked_for_a_password(client: TestClient) -> None:
    answer = client.get("/", headers={"accept": "text/html,*/*"})
    assert answer.headers["www-authenticate"].startswith("Basic")
    assert client.get("/", headers=basic(ALICE)).status_code == 200


def test_debug_is_for_admins(client: TestClient, open_client: TestClient) -> None:
    assert client.post("/debug/profile", headers=bearer(ADMIN)).status_code == 200
    answer = client.post("/debug/profile", headers=bearer(ALICE))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    assert open_client.post("/debug/profile").status_code == 403
    assert client.get("/debug", headers=bearer(ALICE)).status_code == 403
    assert client.get("/debugger", headers=bearer(ALICE)).status_code == 404


@pytest.mark.parametrize("given", ["abc", "A-1.b_c:d", "x" * 128])
def test_a_sane_id_is_kept_everywhere(open_client: TestClient, given: str) -> None:
    answer = open_client.post("/v1/completions", headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == given
    assert answer.json()["logged"] == given
    again = open_client.post("/v1/completions", headers={"x-request-id": given})
    ids = {answer.json()["id"], again.json()["id"]}
    assert len(ids) == 2, "what runs has an id of its own, whatever clients call it"
    assert all(each.startswith(given + "-") for each in ids)


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a\tb", "<script>", "é", "a/b", "a,b"])
def test_any_other_id_is_replaced(open_client: TestClient, given: str) -> None:
    answer = open_client.post("/v1/completions", headers={b"x-request-id": given.encode()})
    assert answer.headers["x-request-id"].startswith("req_")
    assert answer.json()["id"] == answer.json()["logged"] == answer.headers["x-request-id"]


def test_ids_differ_and_two_are_replaced(open_client: TestClient) -> None:
    ids = {open_client.get("/health").headers["x-request-id"] for _ in range(20)}
    assert len(ids) == 20
    twice = open_client.get("/health", headers=[("x-request-id", "a"), ("x-request-id", "b")])
    assert twice.headers.get_list("x-request-id")[0].startswith("req_")


@pytest.mark.parametrize(("given", "deadline"), [("5", 5.0), ("0.25", 0.25), ("1e2", 100.0), ("86400", 86400.0)])
def test_a_deadline_reaches_the_route(open_client: TestClient, given: str, deadline: float) -> None:
    assert open_client.post("/v1/completions", headers={"x-request-deadline": given}).json()["deadline"] == deadline


@pytest.mark.parametrize("given", ["", "0", "-1", "nan", "inf", "soon", "86401", "1e400", "1" * 40, "５", "é"])
def test_any_other_deadline_is_refused(open_client: TestClient, given: str) -> None:
    answer = open_client.post("/v1/completions", headers={b"x-request-deadline": given.encode()})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "X-Request-Deadline"


def test_bodies_are_counted(open_client: TestClient) -> None:
    client = TestClient(application(caps=Caps(body_bytes=1000)))
    assert client.post("/size", content=b"x" * 1000).text == "1000"
    for content in (b"x" * 1001, (b"x" * 100 for _ in range(11)), (b"x" * 1001,)):
        answer = client.post("/size", content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
        assert answer.headers["connection"] == "close"
        assert "--max-body-mb" in answer.text
    assert client.post("/size", content=(b"x" * 100 for _ in range(10))).text == "1000"


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "9" * 30, ""])
def test_a_length_that_is_none_is_refused(open_client: TestClient, length: str) -> None:
    answer = open_client.post("/size", content=b"", headers={"content-length": length})
    assert answer.status_code in (400, 413)


def test_headers_are_counted(open_client: TestClient) -> None:
    client = TestClient(application(caps=Caps(headers=20, header_bytes=2000)))
    assert client.get("/health").status_code == 200
    many = client.get("/health", headers=[(f"h{i}", "x") for i in range(20)])
    long = client.get("/health", headers={"h": "x" * 2000})
    for answer in (many, long):
        assert (answer.status_code, answer.json()["error"]["code"]) == (431, "headers_too_large")


def test_limits_are_told_and_kept(client: TestClient, seen: Seen) -> None:
    first = client.post("/v1/completions", headers=bearer(TINY))
    assert first.json()["running"] == 1
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert first.headers["x-ratelimit-limit-tokens"] == "100"
    assert first.headers["x-ratelimit-reset-requests"] == "30s"
    assert client.post("/v1/completions", headers=bearer(TINY)).status_code == 200
    third = client.post("/v1/completions", headers=bearer(TINY))
    assert (third.status_code, third.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(third.headers["retry-after"]) <= 30
    assert int(third.headers["retry-after-ms"]) <= 30_000
    assert third.headers["x-ratelimit-remaining-requests"] == "0"
    assert seen.refusals == ["limit"]
    assert client.get("/metrics", headers=bearer(TINY)).status_code == 200, "reading costs nothing"
    assert "x-ratelimit-limit-requests" not in client.post("/v1/completions", headers=bearer(ALICE)).headers


def test_what_is_counted_and_how(client: TestClient, seen: Seen) -> None:
    client.get("/v1/files/7", headers=bearer(ALICE))
    client.post("/v1/files/7", headers=bearer(ALICE))
    client.get("/nothing/at/all", headers=bearer(ALICE))
    client.get("/metrics")
    assert seen.http == [
        ("/v1/files/{file_id}", "GET", 200),
        ("/v1/files/{file_id}", "POST", 405),
        ("other", "GET", 404),
        ("other", "GET", 401),
    ]


def test_the_unexpected_is_logged_with_its_id_and_not_told(
    open_client: TestClient, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    answer = open_client.post("/fails", headers={"x-request-id": "mine"})
    assert answer.status_code == 500
    assert "mine" in answer.json()["error"]["message"]
    assert "swordfish" not in answer.text
    assert answer.headers["x-request-id"] == "mine"
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert seen.http == [("/fails", "POST", 500)]


def test_while_draining_only_reading_goes_on(seen: Seen) -> None:
    drain = Drain()
    client = TestClient(application(drain=drain, seen=seen))
    drain.begin()
    answer = client.post("/v1/completions")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
    assert answer.headers["retry-after"] == "5"
    assert answer.headers["connection"] == "close"
    assert client.get("/health").status_code == 200
    assert client.get("/metrics").status_code == 200
    with pytest.raises(WebSocketDenialResponse) as caught, client.websocket_connect("/v1/stream"):
        pass
    assert caught.value.status_code == 503
    assert seen.refusals == ["draining", "draining"]


@pytest.mark.parametrize(
    ("headers", "protocols", "accepted"),
    [
        (bearer(ALICE), None, None),
        ({"x-api-key": ALICE}, None, None),
        ({}, [f"quire.key.{ALICE}"], f"quire.key.{ALICE}"),
        ({}, ["quire", f"quire.key.{ALICE}"], "quire"),
    ],
)
def test_sockets_bring_keys_too(
    client: TestClient, headers: dict[str, str], protocols: list[str] | None, accepted: str | None, seen: Seen
) -> None:
    with client.websocket_connect("/v1/stream", headers=headers, subprotocols=protocols) as session:
        who = session.receive_json()
        assert session.accepted_subprotocol == accepted
    assert who["tenant"] == "alice"
    assert "sec-websocket-protocol" not in who["headers"]
    assert who["running"] == 0, "a socket is no work by itself"
    assert seen.http == [("/v1/stream", "WEBSOCKET", 101)]


@pytest.mark.parametrize("protocols", [None, ["quire"], ["quire.key."], ["quire.key.wrong"], [ALICE]])
def test_a_socket_without_a_key_is_refused(client: TestClient, protocols: list[str] | None) -> None:
    with (
        pytest.raises(WebSocketDenialResponse) as caught,
        client.websocket_connect("/v1/stream", subprotocols=protocols),
    ):
        pass
    assert caught.value.status_code == 401
    assert caught.value.json()["error"]["code"] == "invalid_api_key"
    assert caught.value.headers["x-request-id"]


OWN = {"host": "quire.local:8000"}


@pytest.mark.parametrize(
    ("origin", "more", "status"),
    [
        (None, {}, 200),
        ("http://quire.local:8000", {}, 200),
        ("https://quire.local:8000", {}, 200),
        ("https://ally.org", {}, 200),
        ("https://evil.org", {"sec-fetch-site": "same-origin"}, 200),
        ("https://evil.org", {}, 403),
        ("https://evil.org", {"sec-fetch-site": "cross-site"}, 403),
        ("http://quire.local:8001", {}, 403),
        ("https://ally.org.evil.org", {}, 403),
        ("null", {}, 403),
        ("", {}, 403),
    ],
)
def test_pages_from_elsewhere_make_no_work(origin: str | None, more: dict[str, str], status: int) -> None:
    client = TestClient(application(origins=("https://ally.org",)))
    headers = {**OWN, **more, **({} if origin is None else {"origin": origin})}
    assert client.post("/v1/completions", headers=headers).status_code == status
    assert client.get("/metrics", headers=headers).status_code == 200
    if status == 403:
        with (
            pytest.raises(WebSocketDenialResponse) as caught,
            client.websocket_connect("/v1/stream", headers=headers),
        ):
            pass
        assert caught.value.status_code == 403
    else:
        with client.websocket_connect("/v1/stream", headers=headers) as session:
            session.receive_json()


def test_allowed_origins_are_told_so_even_before_a_key_is_sent(seen: Seen) -> None:
    client = TestClient(application(keys=ring(), origins=("https://ally.org",), seen=seen))
    asking = {
        "origin": "https://ally.org",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    asked = client.options("/v1/completions", headers=asking)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == "https://ally.org"
    assert asked.headers["x-request-id"]
    answer = client.post("/v1/completions", headers={**bearer(ALICE), "origin": "https://ally.org"})
    assert answer.headers["access-control-allow-origin"] == "https://ally.org"
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    refused = client.post("/v1/completions", headers={"origin": "https://ally.org"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://ally.org"


def test_concurrency_is_held_until_the_answer_is_sent() -> None:
    """A second request is refused while the first one's answer is still being read, and let in after it."""

    async def scenario() -> list[int]:
        halfway, go_on = asyncio.Event(), asyncio.Event()
        keys = ring()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            halfway.set()
            await go_on.wait()
            await send({"type": "http.response.body", "body": b"done"})

        drain = Drain()
        app = guarded(
            slow,
            keys=keys,
            drain=drain,
            metrics=Metrics(Seen()),
            log=RequestLog(ObserveConfig()),
        )
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=bearer(TINY)) as client:
            first = asyncio.create_task(client.post("/v1/completions"))
            await halfway.wait()
            assert drain.running == 1
            second = await client.post("/v1/completions")
            go_on.set()
            statuses = [(await first).status_code, second.status_code]
            assert drain.running == 0
            await drain.quiet()
            return [*statuses, (await client.post("/v1/completions")).status_code]

    assert asyncio.run(scenario()) == [200, 429, 200]
