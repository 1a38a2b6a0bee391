"""Bodies as tokens: what they become, and that tokens are answered as the body would be."""

from typing import Any

import httpx
import pytest

from tests.server.live import LiveServer
from tests.server.vllm.test_routes import HI, PROMPT, ask

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture
def client(live_server: LiveServer) -> Any:
    with live_server.client() as found:
        yield found


def test_tokens_are_answered_as_the_conversation_is(client: httpx.Client) -> None:
    body = {"messages": HI, "max_tokens": 6, "seed": 7, "temperature": 0.7, "frequency_penalty": 0.5}
    rendered = ask(client, f"{CHAT}/render", **body)
    assert rendered["sampling_params"] == {"max_tokens": 6, "seed": 7, "temperature": 0.7, "frequency_penalty": 0.5}
    assert rendered["request_id"].startswith("chatcmpl-")
    alone = ask(client, CHAT, return_token_ids=True, **body)
    assert rendered["token_ids"] == alone["prompt_token_ids"]
    made = ask(client, "/inference/v1/generate", **rendered)
    assert made["choices"][0]["token_ids"] == alone["choices"][0]["token_ids"]


def test_every_prompt_is_a_request(client: httpx.Client) -> None:
    first, second = ask(client, f"{COMPLETIONS}/render", prompt=[PROMPT, [1, 2, 3]], priority=3)
    assert (second["token_ids"], second["priority"]) == ([1, 2, 3], 3)
    assert first["token_ids"] == ask(client, "/tokenize", prompt=PROMPT)["tokens"]
    assert first["request_id"] != second["request_id"]
    assert first["sampling_params"] == {"max_tokens": 16}  # OpenAI's, of completions that do not say


def test_a_stream_stays_one(client: httpx.Client) -> None:
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    rendered = ask(client, f"{CHAT}/render", messages=HI, **asked)
    assert {name: rendered[name] for name in asked} == asked
    assert "max_tokens" not in rendered["sampling_params"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"use_beam_search": True, "n": 2}, "use_beam_search"),
        ({"return_token_offsets": True}, "return_token_offsets"),
        ({"return_assistant_tokens_mask": True}, "return_assistant_tokens_mask"),
    ],
)
def test_what_tokens_do_not_carry(client: httpx.Client, body: dict[str, Any], field: str) -> None:
    answer = client.post(f"{CHAT}/render", json={"messages": HI, "max_tokens": 4, **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
