"""llama.cpp's own API on a real server."""

import json
from typing import Any

import httpx
import pytest

from tests.server.live import LiveServer

PROMPT = {"prompt": "The capital of France is", "n_predict": 4, "temperature": 0}


@pytest.fixture
def client(live_server: LiveServer) -> Any:
    with live_server.client() as found:
        yield found


def test_a_completion(client: httpx.Client) -> None:
    answer = client.post("/completion", json={**PROMPT, "n_probs": 2, "return_tokens": True}).json()
    assert answer["content"].startswith(" Paris")
    assert (answer["stop"], answer["stop_type"], answer["tokens_predicted"]) == (True, "limit", 4)
    assert [entry["id"] for entry in answer["completion_probabilities"]] == answer["tokens"]
    assert [len(entry["top_logprobs"]) for entry in answer["completion_probabilities"]] == [2] * 4
    assert answer["timings"]["predicted_n"] == 4


def test_a_stream_adds_up_to_the_whole_and_ends_with_the_rest(client: httpx.Client) -> None:
    whole = client.post("/completion", json=PROMPT).json()
    with client.stream("POST", "/completion", json={**PROMPT, "stream": True}) as answer:
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["generation_settings"] == whole["generation_settings"]


def test_a_word_stops_it(client: httpx.Client) -> None:
    answer = client.post("/completion", json={**PROMPT, "stop": ["Paris"]}).json()
    assert (answer["stop_type"], answer["stopping_word"], answer["content"]) == ("word", "Paris", " ")


def test_a_grammar_binds_it(client: httpx.Client) -> None:
    answer = client.post("/completion", json={**PROMPT, "grammar": 'root ::= "yes" | "no"'}).json()
    assert answer["content"] in ("yes", "no")


def test_a_model_that_fills_no_gaps_says_so(client: httpx.Client) -> None:
    answer = client.post("/infill", json={"input_prefix": "a", "input_suffix": "b"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == 400
    assert "filling gaps" in answer.json()["error"]["message"]


def test_props(client: httpx.Client) -> None:
    found = client.get("/props").json()
    assert found["default_generation_settings"]["n_ctx"] == 8192
    assert "<|im_start|>" in found["chat_template"]
    assert found["total_slots"] > 0


def test_tokens_in_its_shapes(client: httpx.Client) -> None:
    assert set(client.post("/tokenize", json={"content": "Hi é"}).json()) == {"tokens"}
    pieces = client.post("/tokenize", json={"content": "Hi é😀", "with_pieces": True}).json()["tokens"]
    texts = [each["piece"] if isinstance(each["piece"], str) else None for each in pieces]
    assert texts[0] == "Hi"
    assert None in texts  # a part of a character, as bytes
    tokens = [each["id"] for each in pieces]
    assert client.post("/detokenize", json={"tokens": tokens}).json()["content"] == "Hi é😀"
    assert client.post("/detokenize", json={"tokens": tokens, "model": "smollm2"}).json() == {"prompt": "Hi é😀"}
