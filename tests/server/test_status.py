"""Routes about the server itself, on a real server."""

import httpx
import pytest
from jsonschema import Draft202012Validator

from quire.protocol.schemas.status import BLOCKS, HEALTH, STATS, VERSION
from tests.observe.promtool import promtool_complaints
from tests.server.live import LiveServer


def check(schema: dict, found: object) -> None:
    Draft202012Validator(schema).validate(found)


def test_health_ready_and_version(live_server: LiveServer):
    for path, expected in (("/health", "ok"), ("/ready", "ready")):
        found = live_server.get(path)
        check(HEALTH, found)
        assert found["status"] == expected
    check(VERSION, live_server.get("/version"))


def test_stats_are_as_the_document_says(live_server: LiveServer):
    with live_server.client() as client:
        body = {"prompt": "A long way to go", "max_tokens": 400, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as response:
            lines = response.iter_lines()  # held on to: a reader that is gone is a client that left
            next(lines)
            found = live_server.get("/stats")
            while not found["running"]:  # the engine's next report
                found = live_server.get("/stats")
    check(STATS, found)
    assert found["ready"]
    assert found["kv"]["num_blocks"] > 0
    [request] = [each for each in found["requests"] if each["max_tokens"] == 400]
    assert request["endpoint"] == "/v1/completions"
    assert found["engines"][0]["pid"] > 0
    assert {"importing modules", "finding the device"} <= set(found["engines"][0]["start_seconds"])
    assert "making routes" in found["start_seconds"]


def test_every_block_has_a_state(live_server: LiveServer):
    with live_server.client() as client:
        body = {"prompt": "A long way to go", "max_tokens": 400, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            mine = response.headers["x-request-id"]
            found = live_server.get("/stats/blocks")
            while not found["replicas"][0]["requests"]:  # it is asked of engines once a second
                found = live_server.get("/stats/blocks")
    check(BLOCKS, found)
    [replica] = found["replicas"]
    values, lengths = replica["runs"][::2], replica["runs"][1::2]
    assert sum(lengths) == replica["num_blocks"] == live_server.get("/stats")["kv"]["num_blocks"]
    assert set(values) <= set(range(4 + len(replica["requests"])))
    [owner] = replica["requests"]
    assert mine in owner
    assert 4 in values


def test_metrics_in_both_formats(live_server: LiveServer):
    plain = httpx.get(live_server.url + "/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert "quire_num_requests_running" in plain.text
    accept = {"accept": "application/openmetrics-text"}
    assert httpx.get(live_server.url + "/metrics", headers=accept).text.endswith("# EOF\n")


def test_promtool_finds_nothing_to_complain_about(live_server: LiveServer):
    with live_server.client() as client:
        client.post("/v1/completions", json={"prompt": "One two", "max_tokens": 2}).raise_for_status()
        client.post("/v1/embeddings", json={"input": "One two"}).raise_for_status()
        assert client.post("/v1/completions", json={"prompt": 5}).status_code == 400
        assert promtool_complaints(client.get("/metrics").text) == ""


@pytest.mark.parametrize("path", ["/debug/check", "/debug/profile"])
def test_debugging_needs_a_key_even_where_nothing_else_does(live_server: LiveServer, path: str):
    method = "GET" if path.endswith("check") else "POST"
    assert httpx.request(method, live_server.url + path).status_code == 403


def test_a_page_whose_name_was_made_to_point_here_is_not_served(live_server: LiveServer):
    page = {"host": "evil.example", "origin": "http://evil.example"}
    assert httpx.get(live_server.url + "/v1/models", headers=page).status_code == 421
    port = live_server.url.rpartition(":")[2]
    assert httpx.get(live_server.url + "/v1/models", headers={"host": f"localhost:{port}"}).status_code == 200


def test_every_answer_carries_its_id(live_server: LiveServer):
    answer = httpx.get(live_server.url + "/v1/models", headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    refused = httpx.post(live_server.url + "/v1/completions", json={"prompt": 5})
    assert refused.status_code == 400
    assert refused.headers["x-request-id"].startswith("req_")
    assert len(refused.headers["x-request-id"]) == 32, "as vLLM's"


def test_plain_text_for_people_with_curl(live_server: LiveServer):
    body = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    whole = httpx.post(live_server.url + "/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]
    streamed = httpx.post(
        live_server.url + "/v1/completions",
        json=body | {"stream": True},
        headers={"accept": "text/plain"},
        timeout=60,
    )
    assert streamed.headers["content-type"] == "text/plain; charset=utf-8"
    assert streamed.text == whole + "\n"
    for more in ({"n": 2}, {"echo": True}):
        refused = httpx.post(
            live_server.url + "/v1/completions",
            json=body | {"stream": True} | more,
            headers={"accept": "text/plain"},
            timeout=60,
        )
        assert refused.status_code == 400


def test_a_deadline_in_the_header_is_kept(live_server: LiveServer):
    body = {"prompt": "Without end", "max_tokens": 4000, "ignore_eos": True}
    answer = httpx.post(
        live_server.url + "/v1/completions", json=body, headers={"x-request-deadline": "1.5"}, timeout=60
    )
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "deadline"
    assert answer.json()["usage"]["completion_tokens"] < 4000
    hopeless = httpx.post(
        live_server.url + "/v1/completions", json=body, headers={"x-request-deadline": "0.000001"}, timeout=60
    )
    assert hopeless.status_code == 408
