"""SIGHUP on a real server: what runs for a key that is gone ends, and goes on where that can be when it is back."""

import json
import signal
import time
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.server.gate.test_keys import hashed
from tests.server.live import LiveServer, running_server

ALICE = {"Authorization": "Bearer alice-secret"}
LINE = {"method": "POST", "url": "/v1/completions"}
ENDLESS = {"prompt": "On and on", "max_tokens": 8000, "ignore_eos": True}


def write_keys(path: Path, *names: str) -> None:
    path.write_text("".join(f"{name}: {{sha256: {hashed(f'{name}-secret')}, weight: 2}}\n" for name in names))
    path.chmod(0o600)


def reload(server: LiveServer, times: int) -> None:
    server.process.send_signal(signal.SIGHUP)
    while sum("keys again" in str(record.get("message")) for record in server.logged()) < times:
        time.sleep(0.01)


def start_batch(client: httpx.Client, *bodies: dict[str, object]) -> str:
    lines = [json.dumps({**LINE, "custom_id": str(place), "body": body}) for place, body in enumerate(bodies)]
    file = client.post("/v1/files", files={"file": ("in.jsonl", "\n".join(lines))}, data={"purpose": "batch"}).json()
    asked = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    return str(client.post("/v1/batches", json=asked).raise_for_status().json()["id"])


def wait_for_requests(server: LiveServer, count: int) -> None:
    while len(server.get("/stats")["requests"]) != count:
        time.sleep(0.01)


def hear_to_the_end(socket: ClientConnection) -> None:
    while True:
        socket.recv(timeout=60)


def test_a_revoked_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    write_keys(keys, "alice", "bob")
    options = ("--keys", str(keys), "--scheduling-policy", "fair")
    with (
        running_server(tmp_path, *options, key="master") as server,
        httpx.Client(base_url=server.url, headers=ALICE, timeout=60) as alice,
    ):
        url = server.url.replace("http", "ws") + "/v1/stream"
        with connect(url, additional_headers=ALICE, max_size=None) as socket:
            socket.send(json.dumps({"type": "start", "id": "a", "url": "/v1/completions", "body": ENDLESS}))
            batch = start_batch(alice, ENDLESS, {"prompt": "Short", "max_tokens": 2})
            while alice.get(f"/v1/batches/{batch}").json()["request_counts"]["completed"] < 1:
                time.sleep(0.01)
            wait_for_requests(server, 2)
            write_keys(keys, "bob")
            reload(server, 1)
            with pytest.raises(ConnectionClosed) as caught:
                hear_to_the_end(socket)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1008
        wait_for_requests(server, 0)
        assert alice.get(f"/v1/batches/{batch}").status_code == 401
        write_keys(keys, "alice")
        reload(server, 2)
        wait_for_requests(server, 1)
        assert alice.get(f"/v1/batches/{batch}").json()["request_counts"] == {"total": 2, "completed": 1, "failed": 0}
        alice.post(f"/v1/batches/{batch}/cancel").raise_for_status()
