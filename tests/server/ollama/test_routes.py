"""Ollama's API on a real server: lines of JSON, its shapes, and its errors."""

import json
from typing import Any

import httpx
import pytest

from tests.server.live import LiveServer

HI = [{"role": "user", "content": "Say hi."}]
SHORT = {"num_predict": 6, "temperature": 0}


@pytest.fixture
def client(live_server: LiveServer) -> Any:
    with live_server.client() as found:
        yield found


def test_a_chat_comes_in_lines_that_add_up_to_the_whole(client: httpx.Client) -> None:
    body = {"model": "smollm2:latest", "messages": HI, "options": SHORT}
    with client.stream("POST", "/api/chat", json=body) as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    whole = client.post("/api/chat", json={**body, "stream": False}).json()
    assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"]
    for last in (lines[-1], whole):
        assert (last["model"], last["done_reason"], last["eval_count"]) == ("smollm2:latest", "length", 6)
        assert last["total_duration"] > last["eval_duration"] > 0


def test_a_body_needs_no_content_type(client: httpx.Client) -> None:
    """The examples of Ollama's documentation are `curl -d`, which calls everything a form."""
    body = json.dumps({"prompt": "Hi", "stream": False, "options": SHORT})
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = client.post("/api/generate", content=body, headers=form)
    assert answer.json()["eval_count"] == 6
    elsewhere = client.post("/api/generate", content=body, headers={**form, "origin": "https://evil.example"})
    assert elsewhere.status_code == 403
    assert isinstance(elsewhere.json()["error"], str)


def test_a_completion_goes_on_from_its_context(client: httpx.Client) -> None:
    first = client.post("/api/generate", json={"prompt": "Hi", "stream": False, "options": SHORT}).json()
    asked = {"prompt": "And?", "context": first["context"], "stream": False, "options": SHORT}
    second = client.post("/api/generate", json=asked).json()
    assert second["context"][: len(first["context"])] == first["context"]
    assert second["prompt_eval_count"] > first["prompt_eval_count"] + 6


def test_a_raw_prompt_is_read_as_it_stands(client: httpx.Client) -> None:
    asked = {"prompt": "The capital of France is", "raw": True, "stream": False, "options": SHORT}
    answer = client.post("/api/generate", json=asked).json()
    assert answer["response"].startswith(" Paris")
    assert answer["prompt_eval_count"] == 5


def test_a_format_binds_the_answer(client: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"sky": {"enum": ["blue", "green"]}}, "required": ["sky"]}
    body = {"messages": HI, "format": schema, "stream": False, "options": {**SHORT, "num_predict": 40}}
    said = client.post("/api/chat", json=body).json()["message"]["content"]
    assert json.loads(said)["sky"] in ("blue", "green")


@pytest.mark.parametrize(("path", "body"), [("/api/generate", {}), ("/api/chat", {"messages": []})])
def test_an_empty_body_finds_the_model_loaded(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    answer = client.post(path, json={"model": "smollm2", **body}).json()
    assert (answer["done"], answer["done_reason"]) == (True, "load")


def test_logprobs(client: httpx.Client) -> None:
    body = {"messages": HI, "logprobs": True, "top_logprobs": 2, "stream": False, "options": SHORT}
    found = client.post("/api/chat", json=body).json()["logprobs"]
    assert [len(entry["top_logprobs"]) for entry in found] == [2] * 6


@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        ("/api/chat", {"model": "nothing", "messages": HI}, 404, "nothing"),
        ("/api/chat", {"messages": HI, "options": {"mirostat": 1}}, 400, "mirostat"),
        ("/api/chat", {"messages": HI, "think": True}, 400, "think"),
        ("/api/generate", {"prompt": "a", "suffix": "b"}, 400, "suffix"),
        ("/api/embed", {"input": 5}, 400, "input"),
        ("/api/show", {"model": "nothing"}, 404, "nothing"),
        ("/api/pull", {"model": "x"}, 404, "/api/pull"),
    ],
)
def test_errors_are_in_ollamas_shape(
    client: httpx.Client, path: str, body: dict[str, Any], status: int, word: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert word in answer.json()["error"]


def test_vectors(client: httpx.Client) -> None:
    answer = client.post("/api/embed", json={"model": "smollm2", "input": ["a", "b"]}).json()
    assert len(answer["embeddings"]) == 2
    assert sum(number * number for number in answer["embeddings"][0]) == pytest.approx(1, abs=1e-4)
    one = client.post("/api/embeddings", json={"model": "smollm2", "prompt": "a"}).json()["embedding"]
    assert one == pytest.approx(answer["embeddings"][0], abs=1e-5)
    assert client.post("/api/embed", json={"input": []}).json()["embeddings"] == []


def test_what_clients_ask_first(client: httpx.Client) -> None:
    [card] = client.get("/api/tags").json()["models"]
    assert (card["name"], card["details"]["family"]) == ("smollm2:latest", "llama")
    assert client.get("/api/ps").json()["models"][0]["context_length"] == 8192
    shown = client.post("/api/show", json={"model": card["name"]}).json()
    assert shown["model_info"]["llama.block_count"] == 30
    assert "completion" in shown["capabilities"]
    assert client.get("/api/version").json()["version"].count(".") == 2
