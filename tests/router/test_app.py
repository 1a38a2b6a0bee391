"""The router as clients see it: its gate, its own routes, and everything of its members."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from quire.config.observe import ObserveConfig
from quire.config.router import RouterConfig
from quire.observe.router_metrics import RouterMetrics
from quire.router.router import Router
from quire.server.drain import Drain
from quire.server.gate.key_source import KeySource
from quire.server.listen.address import bind, url_of
from quire.server.listen.listen import Listener
from quire.server.router.app import make_router_app
from tests.router.fake_member import WORDS, FakeMember, Got, Writing
from tests.router.test_relay import until

BODY = {"model": "m", "prompt": "x"}
ALL = "open " + "".join(WORDS) + "end"


class Front:
    """A router on a socket, and its members, in a thread of this process."""

    def __init__(self, members: list[FakeMember], keys: Path | None, settings: dict[str, Any]) -> None:
        self._members = members
        self._keys = keys
        self._settings = {"health_interval": 0.05, "outage_timeout": 1.0, "routing": "round-robin", **settings}
        self.ready = threading.Event()
        self.url = ""
        self.router: Router | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._listener: Listener | None = None

    async def main(self) -> None:
        for member in self._members:
            await member.start()
        urls = ",".join(member.url for member in self._members) or None
        config = RouterConfig(port=0, members=urls, **self._settings)
        listening = bind(config)
        metrics, drain = RouterMetrics(), Drain()
        self.router = router = Router(config, metrics)
        self.loop = asyncio.get_running_loop()
        await router.start()
        keys = KeySource(config.api_key, self._keys)
        app = make_router_app(router, keys.ring, drain, metrics, ObserveConfig())
        self._listener = Listener(app, config, drain)
        self.url = url_of(listening, config)
        await until(lambda: all(each.models for each in router.members))
        self.ready.set()
        await self._listener.run(listening)
        await router.close()
        for member in self._members:
            member.kill()

    def stop(self) -> None:
        assert self.loop is not None
        assert self._listener is not None
        for _ in range(2):
            self.loop.call_soon_threadsafe(self._listener.stop)

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)


@contextmanager
def front(*members: FakeMember, keys: Path | None = None, **settings: Any) -> Iterator[Front]:
    made = Front(list(members), keys, settings)
    thread = threading.Thread(target=lambda: uvloop.run(made.main()), daemon=True)
    thread.start()
    assert made.ready.wait(20)
    try:
        yield made
    finally:
        made.stop()
        thread.join(20)
        assert not thread.is_alive()


def test_clients_get_what_members_say() -> None:
    first, second = FakeMember(dies_after=5), FakeMember()
    with front(first, second) as made, made.client() as client:
        streamed = client.post("/v1/completions?x=%20y", json={**BODY, "stream": True})
        assert (streamed.status_code, streamed.text) == (200, ALL)
        assert streamed.headers["x-said"] == "by a member"
        assert "x-quire-journal" not in streamed.headers
        assert streamed.headers["x-request-id"] == first.got[0].headers["x-request-id"]
        assert [got.target for got in first.got] == ["/v1/completions?x=%20y"]
        assert client.post("/v1/completions", json=BODY).json() == {"text": "".join(WORDS)}
        assert client.get("/anything").json()["text"] == "".join(WORDS)
        counted = client.get("/metrics").text
        assert 'quire_router_resumed_total{member="0",model_name=""} 1.0' in counted
        assert 'quire_router_members{model_name="",state="ready"} 2.0' in counted


def test_a_clients_headers_do_not_speak_for_the_router(keys: Path) -> None:
    sent = {"x-quire-caller": '{"tenant": "other"}', "x-quire-resume": "5", "x-mine": "1", "x-quire-journal": "1"}
    member = FakeMember()
    with front(member) as made, made.client() as client:
        assert client.post("/v1/completions", json=BODY, headers=sent).status_code == 200
        got = member.got[0].headers
        assert "x-quire-caller" not in got
        assert "x-quire-resume" not in got
        assert got["x-mine"] == "1"
    with front(FakeMember(), keys=keys) as made, made.client("alice") as client:
        assert client.post("/v1/completions", json=BODY, headers=sent).status_code == 403


def test_how_it_is() -> None:
    with front(FakeMember()) as made, made.client() as client:
        assert client.get("/health").json() == {"status": "ok", "members": 1, "ready": 1}
        assert client.get("/ready").status_code == 200
        assert client.get("/version").status_code == 200
        [card] = client.get("/stats").json()["members"]
        assert (card["state"], card["models"], card["continues_answers"]) == ("ready", ["m"], True)


def test_an_outage_is_503() -> None:
    member = FakeMember()
    with front(member) as made, made.client() as client:
        assert made.loop is not None
        made.loop.call_soon_threadsafe(member.kill)
        refused = client.post("/v1/completions", json=BODY)
        assert refused.status_code == 503
        assert "no member takes work" in refused.json()["error"]["message"]
        assert refused.headers["retry-after"]
        assert client.get("/health").status_code == 503
        assert client.get("/ready").status_code == 503
        assert client.get("/v1/models").status_code == 503
        anthropic = client.post("/v1/messages", json={"model": "m", "messages": []})
        assert anthropic.json()["type"] == "error"


def test_models_are_those_of_all() -> None:
    with front(FakeMember(models=("m", "a")), FakeMember(models=("m", "b"))) as made, made.client() as client:
        assert sorted(card["id"] for card in client.get("/v1/models").json()["data"]) == ["a", "b", "m"]


KEYS = """
alice:
  sha256: 2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90
  models: [m]
  concurrency: 1
boss:
  sha256: 81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9
  admin: true
"""
"""Of the keys alice and bob."""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.yaml"
    path.write_text(KEYS)
    path.chmod(0o600)
    return path


def test_keys(keys: Path) -> None:
    member = FakeMember(models=("m", "n"))
    with front(member, keys=keys, member_key="inner") as made, made.client("alice") as client:
        assert httpx.get(made.url + "/v1/models").status_code == 401
        assert httpx.get(made.url + "/health").status_code == 200
        assert client.post("/v1/completions", json=BODY).status_code == 200
        got = member.got[0].headers
        assert got["authorization"] == "Bearer inner"
        caller = json.loads(got["x-quire-caller"])
        assert caller["tenant"] == "alice"
        assert len(caller["cache_salt"]) == 64
        assert client.post("/v1/completions", json={**BODY, "model": "n"}).status_code == 404
        assert client.post("/v1/completions", json={"prompt": "x"}).status_code == 404
        assert [card["id"] for card in client.get("/v1/models").json()["data"]] == ["m"]
        for method, path in (("GET", "/router/members"), ("POST", "/v1/load_lora_adapter"), ("GET", "/debug/check")):
            assert client.request(method, path, json={}).status_code == 403
        assert client.post("/v1/completions", json=BODY, headers={"x-quire-member": "0"}).status_code == 400


def test_without_keys_nobody_is_an_admin() -> None:
    with front(FakeMember()) as made, made.client() as client:
        for method, path in (("GET", "/router/members"), ("POST", "/router/members"), ("POST", "/debug/profile")):
            assert client.request(method, path, json={"url": "http://evil:1"}).status_code == 403


def test_a_clients_key_goes_to_members_where_the_router_has_none() -> None:
    member = FakeMember()
    with front(member) as made, made.client("mine") as client:
        assert client.post("/v1/completions", json=BODY).status_code == 200
        assert member.got[0].headers["authorization"] == "Bearer mine"


def test_members_come_and_go(keys: Path) -> None:
    first, second = FakeMember(), FakeMember()
    with front(first, second, keys=keys) as made, made.client("bob") as client:
        cards = client.get("/router/members").json()["data"]
        assert [card["state"] for card in cards] == ["ready", "ready"]
        assert client.post("/router/members/0/drain?wait=1").json()["state"] == "draining"
        for _ in range(3):
            client.post("/v1/completions", json=BODY)
        assert (len(first.got), len(second.got)) == (0, 3)
        assert client.post("/router/members/0/resume").json()["state"] == "ready"
        assert client.delete("/router/members/1").json()["removed"]
        client.post("/v1/completions", json=BODY)
        assert (len(first.got), len(second.got)) == (1, 3)
        added = client.post("/router/members", json={"url": second.url}).json()
        assert (added["url"], added["id"]) == (second.url, 2)
        assert client.post("/router/members", json={"url": "nonsense"}).status_code == 400
        assert client.post("/router/members", json={"url": second.url, "role": "x"}).status_code == 400
        assert client.post("/router/members/9/drain").status_code == 404
        pinned = client.post("/v1/completions", json=BODY, headers={"x-quire-member": "0"})
        assert pinned.headers["x-quire-member"] == "0"
        assert client.get("/x", headers={"x-quire-member": "77"}).status_code == 404
        about_one = client.post("/sleep?level=1")
        assert (about_one.status_code, "x-quire-member" in about_one.json()["error"]["message"]) == (400, True)
        assert client.get("/debug/check", headers={"x-quire-member": first.url}).headers["x-quire-member"] == "0"


def storing(name: str) -> Callable[[Got, Writing], Any]:
    """A member that has stored one response, one file and one conversation."""
    shown = {f"/v1/{kind}_{name}" for kind in ("responses/resp", "conversations/conv")} | {f"/v1/files/file-{name}"}

    async def answer(got: Got, writing: Writing) -> None:
        path = got.target.partition("?")[0]
        if got.method == "GET" and path == "/v1/files":
            await writing.whole(200, {"data": [{"id": f"file-{name}", "created_at": ord(name[0])}]})
        elif got.method == "GET" and path not in shown:
            await writing.whole(404, {"error": {"message": "not here"}})
        else:
            await writing.whole(200, {"id": f"resp_{name}", "by": name})

    return answer


def test_stored_things_are_found_where_they_are() -> None:
    with (
        front(FakeMember(handler=storing("a")), FakeMember(handler=storing("b"))) as made,
        made.client() as client,
    ):
        for name in ("a", "b", "b", "a"):
            assert client.get(f"/v1/responses/resp_{name}").json()["by"] == name
            going_on = client.post("/v1/responses", json={"input": "x", "previous_response_id": f"resp_{name}"})
            assert going_on.json()["by"] == name
            assert client.post("/v1/batches", json={"input_file_id": f"file-{name}"}).json()["by"] == name
            for named in (f"conv_{name}", {"id": f"conv_{name}"}):
                within = client.post("/v1/responses", json={"input": "x", "conversation": named})
                assert within.json()["by"] == name
            added = client.post(f"/v1/conversations/conv_{name}/items", json={"items": []})
            assert added.json()["by"] == name
            assert client.delete(f"/v1/conversations/conv_{name}/items/msg_1").json()["by"] == name
        missing = client.get("/v1/responses/resp_c")
        assert missing.status_code == 404
        assert "no instance has" in missing.json()["error"]["message"]
        listed = client.get("/v1/files", params={"limit": 1}).json()
        assert ([each["id"] for each in listed["data"]], listed["has_more"]) == (["file-b"], True)
        rest = client.get("/v1/files", params={"limit": 1, "after": "file-b"}).json()
        assert ([each["id"] for each in rest["data"]], rest["has_more"]) == (["file-a"], False)
        assert client.get("/v1/files", params={"limit": "many"}).status_code == 400


def test_a_broken_stream_ends_with_an_error_in_its_own_shape() -> None:
    foreign = FakeMember(is_quire=False, dies_after=2)
    with front(foreign) as made, made.client() as client:
        text = client.post("/v1/chat/completions", json={**BODY, "stream": True}).text
        assert text.startswith("word0 word1 data: ")
        assert "was lost with this request" in json.loads(text.partition("data: ")[2])["error"]["message"]
        named = client.post("/v1/messages", json={**BODY, "stream": True}).text
        assert named.startswith("word0 word1 event: error\ndata: ")


def test_a_large_body_is_refused_and_an_upload_passes() -> None:
    member = FakeMember()
    with front(member, max_body_mb=0.01) as made, made.client() as client:
        assert client.post("/v1/completions", json={"prompt": "x" * 20_000}).status_code == 413
        assert client.post("/v1/audio/transcriptions", files={"file": b"\0\1\2" * 1000}).status_code == 200
        assert b"\0\1\2\0\1\2" in member.got[0].body
        assert member.got[0].headers["content-type"].startswith("multipart/form-data; boundary=")


def test_a_socket_belongs_to_one_member() -> None:
    from websockets.asyncio.server import ServerConnection, serve
    from websockets.sync.client import connect

    got: list[tuple[str, str]] = []

    async def talk(joined: ServerConnection) -> None:
        assert joined.request is not None
        got.append((joined.request.path, joined.request.headers.get("authorization", "")))
        async for message in joined:
            await joined.send(f"you said {message}")
            if message == "leave":
                await joined.close(1011, "gone")

    def probe(connection: ServerConnection, request: Any) -> Any:
        if request.path == "/v1/stream":
            return None
        return connection.respond(200, json.dumps({"data": [{"id": "m"}]}))

    with front(FakeMember(), api_key="k", member_key="inner") as made:
        started = threading.Event()
        port: list[int] = []

        async def member() -> None:
            async with serve(talk, "127.0.0.1", 0, process_request=probe) as server:
                port.append(next(iter(server.sockets)).getsockname()[1])
                started.set()
                await asyncio.sleep(60)

        threading.Thread(target=lambda: asyncio.run(member()), daemon=True).start()
        assert started.wait(10)
        with made.client("k") as client:
            client.post("/router/members", json={"url": f"http://127.0.0.1:{port[0]}"})
            client.delete("/router/members/0")
            with connect(made.url.replace("http", "ws") + "/v1/stream", subprotocols=["quire.key.k"]) as socket:  # type: ignore[list-item]
                socket.send("hello")
                assert socket.recv() == "you said hello"
                socket.send("leave")
                assert socket.recv() == "you said leave"
                with pytest.raises(Exception, match="1011"):
                    socket.recv()
        assert got == [("/v1/stream", "Bearer inner")]
        with pytest.raises(Exception, match="401"):
            connect(made.url.replace("http", "ws") + "/v1/stream")


def test_members_may_say_anything_of_their_models() -> None:
    member, other = FakeMember(), FakeMember(models=("m",))
    with front(member, other) as made, made.client() as client:
        for said in (b"5", b"{}", b'{"data": 5}', b'{"data": [5, {"id": 7}]}', b"\xff"):

            async def nonsense(got: Got, writing: Writing, said: bytes = said) -> None:
                await writing.whole(200, said)

            member.models_handler = nonsense
            assert client.get("/v1/models").status_code == 200
        assert client.post("/v1/completions", json=BODY).status_code == 200
