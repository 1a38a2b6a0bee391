"""Bodies that nobody means well with, on every route that reads one: each is refused in OpenAI's words or honoured."""

import json
from typing import Any

import httpx
import pytest

from quire.protocol.ignored import HEADER
from quire.server.app import OPERATIONS
from quire.server.operation import Operation
from tests.rarely import rarely
from tests.server.fuzz.conftest import Bystander
from tests.server.live import LiveServer

MIB = 1 << 20
JSON = {"content-type": "application/json", "x-request-deadline": "2"}
FOR_ADMINS = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}
"""Nobody else's bodies are read there."""
WITH_BODY = [
    one
    for one in OPERATIONS
    if one.body is not None and one.body_type == "application/json" and one.path not in FOR_ADMINS
]
USUAL: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hi"}],
    "prompt": "Hi",
    "input": "Hi",
    "tokens": [1],
    "text_1": "Hi",
    "text_2": "Ho",
    "max_tokens": 1,
    "n_predict": 1,
    "max_output_tokens": 1,
    "input_file_id": "file-0000000000000000",
    "endpoint": "/v1/chat/completions",
    "completion_window": "24h",
}
"""What fills the required fields of the routes."""
WRONG: list[Any] = [
    *(True, -1, 0, 2**63, 10**30, 1e308, 5e-324, "", "x", "\0", "😀" * 100, [], {}, [[]], [None], {"": {"a": []}}),
    [{"type": "x"}] * 3,
]

RAW: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"messages": [{"role"',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "text": b'"text"',
    "not a number": b'{"temperature": NaN}',
    "infinite": b'{"temperature": -Infinity}',
    "too large a number": b'{"temperature": 1e999}',
    "5,000 digits": b'{"max_tokens": ' + b"9" * 5000 + b"}",
    "5,000 digits in a list": b'{"prompt": [' + b"9" * 5000 + b"]}",
    "lists 100,000 deep": b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "objects 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "brackets that never close": b"[" * MIB,
    "bad UTF-8": b'{"prompt": "\xff\xfe\xc0\x80", "input": "\xff", "messages": "\xff"}',
    "half a surrogate": b'{"prompt": "\\ud800", "input": "\\ud800", "text_1": "\\udfff"}',
    "UTF-16": '{"prompt": "x"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"prompt": "x"}',
    "NULs": b"\0" * 1000,
    "two bodies": b'{"prompt": "x"}{"prompt": "y"}',
}
UNKNOWN: dict[str, bytes] = {
    "many keys": json.dumps({f"key{place}": place for place in range(100_000)}).encode(),
    "one long key": json.dumps({"k" * MIB: 1}).encode(),
}
"""Bodies of routes that require no field, for what is not known changes nothing."""


def by_path(operation: Operation) -> str:
    return operation.path


def usual_body(operation: Operation) -> dict[str, Any]:
    assert operation.body is not None
    fields = operation.body.get("properties", {})
    wanted = {*operation.body.get("required", ()), "max_tokens", "max_output_tokens", "n_predict"} & fields.keys()
    return {name: USUAL[name] for name in wanted if name in USUAL}


def check(answer: httpx.Response, what: object) -> None:
    """Honoured, or refused in words that a client can read."""
    assert answer.status_code < 500, (what, answer.text[:500])
    if answer.status_code >= 400:
        assert message_of(answer), what
        assert len(answer.content) < 4096, what  # what was sent is not sent back


def message_of(answer: httpx.Response) -> str:
    """Ollama's errors are nothing but their message."""
    error = answer.json()["error"]
    message: str = error if isinstance(error, str) else error["message"]
    return message


def path_of(operation: Operation) -> str:
    return operation.path.replace("{response_id}", "resp_0000000000000000").replace(
        "{batch_id}", "batch_00000000000000000"
    )


@pytest.mark.parametrize("operation", rarely(WITH_BODY, every=2), ids=by_path)
def test_bodies_that_are_no_bodies(operation: Operation, fuzzed_server: LiveServer, bystander: Bystander) -> None:
    assert operation.body is not None
    with fuzzed_server.client() as client:
        for name, raw in RAW.items():
            answer = client.post(path_of(operation), content=raw, headers=JSON)
            assert answer.status_code == 400, (name, answer.status_code, answer.text[:300])
            check(answer, name)
        for name, raw in UNKNOWN.items():
            answer = client.post(path_of(operation), content=raw, headers=JSON)
            assert answer.status_code == 400 or not operation.body.get("required"), (name, answer.text[:300])
            check(answer, name)


@pytest.mark.parametrize("operation", rarely(WITH_BODY, every=3), ids=by_path)
def test_every_field_with_every_wrong_type(operation: Operation, fuzzed_server: LiveServer) -> None:
    assert operation.body is not None
    usual = usual_body(operation)
    with fuzzed_server.client() as client:
        for name in operation.body.get("properties", {}):
            for wrong in WRONG:
                answer = client.post(path_of(operation), json=usual | {name: wrong}, headers=JSON)
                check(answer, (name, wrong))


@pytest.mark.parametrize("operation", WITH_BODY, ids=by_path)
def test_a_field_that_is_not_known_is_named(operation: Operation, fuzzed_server: LiveServer) -> None:
    """Also one that would write headers of its own. A body that is refused anyway may be so for another field."""
    for name, shown in (("surprise", "surprise"), ("a\r\nx-evil: 1, ü", "a??x-evil:?1????")):
        with fuzzed_server.client() as client:
            answer = client.post(path_of(operation), json=usual_body(operation) | {name: 1}, headers=JSON)
        assert "x-evil" not in answer.headers
        if answer.status_code == 200:
            assert answer.headers[HEADER].startswith(shown[:12])
        else:
            assert answer.status_code in (400, 408)  # the latter where the requests' deadline is short
            assert message_of(answer)


@pytest.mark.parametrize("operation", rarely(WITH_BODY, every=3), ids=by_path)
def test_texts_of_ten_megabytes(operation: Operation, fuzzed_server: LiveServer, bystander: Bystander) -> None:
    """Too long for the model; that is found out without anyone else waiting for it."""
    long, usual = "a b " * (10 * MIB // 4), usual_body(operation)
    with fuzzed_server.client() as client:
        for name, value in usual.items():
            if name in ("prompt", "input", "text_1", "text_2"):
                check(client.post(path_of(operation), json=usual | {name: long}, headers=JSON), name)
            if name == "messages":
                sent = usual | {name: [{"role": "user", "content": long}]}
                check(client.post(path_of(operation), json=sent, headers=JSON), name)
            elif isinstance(value, str):
                check(client.post(path_of(operation), json=usual | {name: "x" * (10 * MIB)}, headers=JSON), name)


def test_a_body_beyond_the_cap_is_refused(fuzzed_server: LiveServer, bystander: Bystander) -> None:
    with fuzzed_server.client() as client:
        answer = client.post("/v1/completions", content=b" " * (64 * MIB), headers=JSON)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request_too_large"


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x" * 500]
)
def test_other_kinds_of_content(fuzzed_server: LiveServer, kind: str) -> None:
    with fuzzed_server.client() as client:
        headers = {"content-type": kind} if kind else {}
        answer = client.post("/v1/completions", content=b'{"prompt": "x", "max_tokens": 1}', headers=headers)
        assert answer.status_code == 415
        assert answer.json()["error"]["message"]


def test_the_last_of_two_equal_keys_counts_or_both_are_refused(fuzzed_server: LiveServer) -> None:
    with fuzzed_server.client() as client:
        raw = b'{"prompt": "x", "max_tokens": 1, "max_tokens": -5}'
        answer = client.post("/v1/completions", content=raw, headers=JSON)
        assert answer.status_code == 400
        check(answer, "twice")


@pytest.mark.parametrize(
    "path", ["/v1/files/..%2f..%2fetc%2fpasswd", "/v1/files/%00", "/v1/batches/" + "x" * 4000, "/%ff"]
)
def test_ids_that_are_no_ids(fuzzed_server: LiveServer, path: str) -> None:
    with fuzzed_server.client() as client:
        for end in ("", "/content", "/cancel"):
            answer = client.get(path + end)
            assert 400 <= answer.status_code < 500
            assert message_of(answer)
