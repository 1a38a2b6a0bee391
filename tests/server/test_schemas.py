"""Schemas that a grammar holds only in part: refused where they are strict, else validated, and clients are told."""

import json
from typing import Any

import httpx
import pytest

from quire.serving.validated import HEADER
from tests.server.live import LiveServer

HI = [{"role": "user", "content": "Give me JSON."}]
FIXED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"const": 1}},
    "required": ["a"],
    "additionalProperties": False,
}
"""The only text is {"a": 1}."""
KEPT = {**FIXED, "not": {"properties": {"a": {"const": 2}}}}
BROKEN = {**FIXED, "not": {"properties": {"a": {"const": 1}}}}
PARTIAL = "partial; left out: /not"


@pytest.fixture
def client(live_server: LiveServer) -> Any:
    with live_server.client() as found:
        yield found


def chat(schema: Any, **more: Any) -> dict[str, Any]:
    named = {"name": "x", "schema": schema, **more}
    return {"messages": HI, "response_format": {"type": "json_schema", "json_schema": named}, "max_tokens": 30}


def events(answer: httpx.Response) -> list[Any]:
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_text_that_satisfies_all_of_it(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=chat(KEPT))
    assert answer.headers[HEADER] == PARTIAL
    assert json.loads(answer.json()["choices"][0]["message"]["content"]) == {"a": 1}
    assert "schema_errors" not in answer.json()


def test_a_text_that_falls_short_is_told(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json={**chat(BROKEN), "n": 2})
    errors = answer.json()["schema_errors"]
    assert [error["index"] for error in errors] == [0, 1]
    assert "should not be valid" in errors[0]["message"]
    completion = {"prompt": "JSON:", "response_format": chat(BROKEN)["response_format"], "max_tokens": 30}
    assert client.post("/v1/completions", json=completion).json()["schema_errors"] == errors[:1]


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
def test_a_stream_tells_it_in_its_last_chunk(client: httpx.Client, options: dict[str, Any]) -> None:
    answer = client.post("/v1/chat/completions", json={**chat(BROKEN), "stream": True, **options})
    assert answer.headers[HEADER] == PARTIAL
    *others, last = events(answer)
    assert [error["index"] for error in last["schema_errors"]] == [0]
    assert (last["choices"], "usage" in last) == ([], bool(options))
    assert not any("schema_errors" in chunk for chunk in others)


@pytest.mark.parametrize("stream", [False, True])
def test_responses(client: httpx.Client, stream: bool) -> None:
    form = {"type": "json_schema", "name": "x", "schema": BROKEN}
    body = {"input": "JSON", "text": {"format": form}, "max_output_tokens": 30, "stream": stream}
    answer = client.post("/v1/responses", json=body)
    assert answer.headers[HEADER] == PARTIAL
    response = events(answer)[-1]["response"] if stream else answer.json()
    assert [error["index"] for error in response["schema_errors"]] == [0]


def test_several_conversations(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions/batch", json={**chat(BROKEN), "messages": [HI, HI]})
    assert [error["index"] for error in answer.json()["schema_errors"]] == [0, 1]


def test_an_answer_that_is_cut_off_says_so_itself(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json={**chat(BROKEN), "max_tokens": 2}).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert "schema_errors" not in answer


def test_a_strict_schema_is_refused(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=chat(KEPT, strict=True))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "response_format"
    assert "/not" in answer.json()["error"]["message"]


def test_what_costs_too_much_is_refused_with_its_field(client: httpx.Client) -> None:
    one = {"anyOf": [{"type": "string", "maxLength": 200}, {"enum": list(range(20))}]}
    huge = {"type": "object", "properties": {f"p{i}": one for i in range(3000)}, "additionalProperties": False}
    answer = client.post("/v1/chat/completions", json=chat(huge))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "response_format"
    message = answer.json()["error"]["message"]
    assert "s to compile" in message or "too large" in message


def test_a_schema_that_a_grammar_holds_needs_no_words(client: httpx.Client) -> None:
    schema = {**FIXED, "properties": {"a": {"const": 1}, "b": {"const": 2}}, "dependentRequired": {"a": ["b"]}}
    for strict in (True, False):
        answer = client.post("/v1/chat/completions", json=chat(schema, strict=strict))
        assert HEADER not in answer.headers
        assert json.loads(answer.json()["choices"][0]["message"]["content"]) == {"a": 1, "b": 2}
