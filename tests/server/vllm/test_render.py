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
        ({"return_token_offsets": "yes"}, "return_token_offsets"),
        ({"return_assistant_tokens_mask": 1}, "return_assistant_tokens_mask"),
    ],
)
def test_what_tokens_do_not_carry(client: httpx.Client, body: dict[str, Any], field: str) -> None:
    answer = client.post(f"{CHAT}/render", json={"messages": HI, "max_tokens": 4, **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_offsets_are_where_tokens_stand_in_the_text(client: httpx.Client) -> None:
    text = "Grüße, 🌍 and all"
    first, second = ask(client, f"{COMPLETIONS}/render", prompt=[text, [1, 2, 3]], return_token_offsets=True)
    offsets = first["token_offsets"]
    assert len(offsets) == len(first["token_ids"])
    assert (offsets[0][0], offsets[-1][1]) == (0, len(text))
    assert {text[start:end] for start, end in offsets} >= {"Gr", ",", " and", " all"}
    assert second["token_offsets"] is None, "these tokens are of no text"


def test_offsets_of_a_conversation_are_those_of_its_prompt(client: httpx.Client) -> None:
    rendered = ask(client, f"{CHAT}/render", messages=HI, return_token_offsets=True)
    prompt = ask(client, "/detokenize", tokens=rendered["token_ids"])["prompt"]
    pieces = [prompt[start:end] for start, end in rendered["token_offsets"]]
    assert "".join(pieces) == prompt
    assert pieces[0] == "<|im_start|>"


def test_what_the_assistant_wrote_is_not_told_where_the_template_marks_nothing(client: httpx.Client) -> None:
    asked = {"messages": HI, "return_assistant_tokens_mask": True}
    assert ask(client, f"{CHAT}/render", **asked)["assistant_tokens_mask"] is None


def test_tokens_that_a_router_made_are_read_in_place_of_the_messages(client: httpx.Client) -> None:
    body = {"max_tokens": 8, "temperature": 0, "return_token_ids": True}
    alone = ask(client, CHAT, messages=HI, **body)
    others = [{"role": "user", "content": "Count to ten."}]
    params = {"prompt_token_ids": alone["prompt_token_ids"], "do_remote_prefill": True}
    answer = client.post(CHAT, json={"messages": others, "kv_transfer_params": params, **body})
    assert answer.headers["x-quire-ignored"] == "kv_transfer_params.do_remote_prefill"
    found = answer.json()
    assert found["prompt_token_ids"] == alone["prompt_token_ids"]
    assert found["choices"][0]["message"] == alone["choices"][0]["message"]


@pytest.mark.parametrize("tokens", [[], [-1], "no tokens", [10**7]])
def test_tokens_that_are_none_are_refused(client: httpx.Client, tokens: Any) -> None:
    asked = {"messages": HI, "max_tokens": 2, "kv_transfer_params": {"prompt_token_ids": tokens}}
    assert client.post(CHAT, json=asked).status_code == 400
