"""Tool calls of the default model under many seeds: how many there are, and what is left of one that is cut off."""

import random
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.server.clients.weather import NAME, QUESTION, TOOL
from tests.server.live import LiveServer

pytestmark = pytest.mark.slow
SEEDS = range(100)
AT_ONCE = 8
MARKERS = ("<tool_call>", "</tool_call>")
BEGUN, ENDED = (tuple(marker[:length] for length in range(2, len(marker) + 1)) for marker in MARKERS)
"""What may be left of a marker that is cut off; one that ends a call is none where there was no call."""
CALL = re.compile(r"\s*(\{\s*(\"name\".*)?)?$", re.DOTALL)
"""What begins a call, or may still begin one."""
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "function", "function": {"name": NAME}}
CALLED_BEFORE = [
    {"role": "user", "content": "What is the weather in Rome, in celsius?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": NAME, "arguments": '{"city": "Rome", "unit": "celsius"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
    {"role": "assistant", "content": "It is 21 degrees in Rome."},
]
"""A conversation in which the small model, too, begins calls of its own accord."""
WRONG: list[Any] = ["", "nonsense", -7, 1.5e300, [], [{}], {}, {"type": ""}, {"type": "nonsense"}, [{"type": 5}]]
GAP = re.compile(r"\b(be|of|or|and|than|from|to) ?([,;.]|$)|  ")
"""Where a sentence lacks a word."""


def asked(seed: int, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": QUESTION}]
    return {"messages": messages, "tools": [TOOL, TIME], "seed": seed, "temperature": 1.0} | fields


def answers(server: LiveServer, bodies: list[dict[str, Any]]) -> list[Any]:
    with server.client() as client, ThreadPoolExecutor(AT_ONCE) as pool:

        def ask(body: dict[str, Any]) -> Any:
            answer = client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()["choices"][0]

        return list(pool.map(ask, bodies))


def test_a_named_tool_is_called_exactly_once(live_server: LiveServer) -> None:
    choices = answers(live_server, [asked(seed, tool_choice=NAMED, max_tokens=200) for seed in SEEDS])
    calls = [[call["function"]["name"] for call in choice["message"]["tool_calls"]] for choice in choices]
    assert calls == [[NAME]] * len(SEEDS)


@pytest.mark.parametrize("choice", ["required", "auto"])
def test_calls_that_are_not_to_be_parallel(live_server: LiveServer, choice: str) -> None:
    fields: dict[str, Any] = {"tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 120}
    if choice == "auto":
        fields["messages"] = [*CALLED_BEFORE, {"role": "user", "content": QUESTION}]
    choices = answers(live_server, [asked(seed, **fields) for seed in SEEDS])
    calls = [len(choice["message"].get("tool_calls") or ()) for choice in choices]
    assert max(calls) == 1
    assert choice == "auto" or min(calls) == 1


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_markup_is_no_content_wherever_an_answer_is_cut(live_server: LiveServer, choice: str) -> None:
    messages = [*CALLED_BEFORE, {"role": "user", "content": QUESTION}]
    bodies = [asked(seed, messages=messages, tool_choice=choice, max_tokens=1 + seed % 40) for seed in SEEDS]
    choices = answers(live_server, bodies)
    assert sum(choice["finish_reason"] == "length" for choice in choices) > len(SEEDS) // 4
    for found in choices:
        said = found["message"]["content"] or ""
        assert not said.endswith(BEGUN + ENDED * bool(found["message"].get("tool_calls"))), said
        # what stands there instead of a call is text, and none of it is lost
        assert all(CALL.match(after) is None for after in said.split(MARKERS[0])[1:]), said


def test_a_refusal_is_a_sentence(live_server: LiveServer) -> None:
    """Fields of requests with something that they cannot be."""
    with live_server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
        fields = sorted(
            (path, field)
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
            for field in paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
            if field != "model"
        )
        told = {message for seed in SEEDS for message in _refusal(client, *_broken(seed, fields))}
    assert len(told) > len(SEEDS) // 2
    assert [message for message in told if GAP.search(message)] == []


def _broken(seed: int, fields: list[tuple[str, str]]) -> tuple[str, dict[str, Any]]:
    chosen = random.Random(seed)
    path, field = chosen.choice(fields)
    wrong = chosen.choice(WRONG)
    messages = [{"role": "user", "content": "Hello"}]
    right: dict[str, Any] = {
        "/v1/completions": {"prompt": "Hello", "max_tokens": 1},
        "/v1/responses": {"input": "Hello", "max_output_tokens": 16},
    }.get(path, {"messages": messages, "max_tokens": 1})
    return path, right | {field: wrong}


def _refusal(client: httpx.Client, path: str, body: dict[str, Any]) -> list[str]:
    answer = client.post(path, json=body)
    assert answer.status_code < 500, (path, body)
    return [answer.json()["error"]["message"]] if answer.status_code == 400 else []
