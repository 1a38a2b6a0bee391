"""Chats: what is asked reaches the engine, and its answer is OpenAI's, whole and in pieces."""

import asyncio
import logging
from typing import Any

import pytest

from quire.config.server import ServerConfig
from quire.core.errors import InvalidRequest, QuireError
from quire.core.sampling_params import SamplingParams
from quire.server.openai.chat import read_call
from tests.server.openai.conftest import Ask, Stream
from tests.server.openai.fake_serving import CALLER, FakeServing

PATH = "/v1/chat/completions"
HI: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
RENDERED = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_whole_answer(ask: Ask, serving: FakeServing) -> None:
    body = ask(PATH, model="org/tiny", messages=HI, temperature=0)
    prompt = serving.tokenizer.encode(RENDERED, add_special_tokens=False)
    written = len(serving.tokenizer.encode("wörld 🙂!")) + 1
    fingerprint = body.pop("system_fingerprint")
    assert fingerprint.startswith("fp_")
    assert body == {
        "id": "chatcmpl-r1",
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": "org/tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "wörld 🙂!", "refusal": None},
                "logprobs": None,
                "token_ids": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "prompt_token_ids": None,
        "prompt_logprobs": None,
        "usage": {
            "prompt_tokens": len(prompt),
            "completion_tokens": written,
            "total_tokens": len(prompt) + written,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    (call,) = serving.calls
    assert (call.endpoint, call.prompts, call.texts) == (PATH, [prompt], [RENDERED])
    assert call.params == SamplingParams(temperature=0, max_tokens=None)
    assert not call.stream


def test_a_stream_is_what_openai_sends(stream: Stream) -> None:
    chunks = stream(PATH, messages=HI)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["id"] for chunk in chunks} == {"chatcmpl-r1"}
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert len(choices) == len(chunks)
    first, *pieces, last = choices
    assert first == {
        "index": 0,
        "delta": {"role": "assistant", "content": "", "refusal": None},
        "logprobs": None,
        "finish_reason": None,
    }
    assert "".join(piece["delta"].pop("content") for piece in pieces) == "wörld 🙂!"
    assert all(piece == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None} for piece in pieces)
    assert last == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_comes_last_and_is_null_before(stream: Stream, ask: Ask) -> None:
    chunks = stream(PATH, messages=HI, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == ask(PATH, messages=HI)["usage"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_usage_as_it_grows(stream: Stream, ask: Ask) -> None:
    whole = ask(PATH, messages=HI)["usage"]
    chunks = stream(PATH, messages=HI, stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, whole["completion_tokens"])
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {whole["prompt_tokens"]}


def test_several_answers_by_turns(stream: Stream, ask: Ask, serving: FakeServing) -> None:
    serving.says = ("one and a bit more", "two", "three is longer")
    whole = ask(PATH, messages=HI, n=3)
    assert [choice["message"]["content"] for choice in whole["choices"]] == list(serving.says)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    texts, ended = ["", "", ""], []
    for chunk in stream(PATH, messages=HI, n=3):
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
        if choice["finish_reason"] is not None:
            ended.append(choice["index"])
        else:
            assert choice["index"] not in ended
    assert texts == list(serving.says)
    assert sorted(ended) == [0, 1, 2]
    assert ended[0] == 1


def test_logprobs(ask: Ask, stream: Stream, serving: FakeServing) -> None:
    asked: dict[str, Any] = {"messages": HI, "logprobs": True, "top_logprobs": 4}
    content = ask(PATH, **asked)["choices"][0]["logprobs"]["content"]
    said = b"".join(bytes(entry["bytes"]) for entry in content)
    assert said.decode() == "wörld 🙂!<|im_end|>"
    assert any("\N{REPLACEMENT CHARACTER}" in entry["token"] for entry in content)  # a part of the smile
    for entry in content:
        assert entry["logprob"] == -2.0
        top = [other["logprob"] for other in entry["top_logprobs"]]
        assert top == [-1.0, -2.0, -9999.0, -9999.0]  # JSON has no infinity
        assert entry["top_logprobs"][1] == {name: entry[name] for name in ("token", "logprob", "bytes")}
    chunks = stream(PATH, **asked)
    pieces = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert [entry for piece in pieces for entry in piece["content"]] == content
    named = ask(PATH, **asked, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in named] == [
        f"token_id:{token}" for token in serving._said(0, serving.calls[0]).token_ids
    ]


def test_the_likeliest_are_left_out_unless_asked_for(ask: Ask) -> None:
    content = ask(PATH, messages=HI, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert all(entry["top_logprobs"] == [] for entry in content)


def test_token_ids_and_prompt_logprobs(ask: Ask, stream: Stream, serving: FakeServing) -> None:
    body = ask(PATH, messages=HI, return_token_ids=True, prompt_logprobs=1)
    (prompt,) = serving.calls[0].prompts
    assert body["prompt_token_ids"] == prompt
    tokens = body["choices"][0]["token_ids"]
    assert serving.tokenizer.decode(tokens) == "wörld 🙂!"
    assert body["prompt_logprobs"][0] is None
    assert len(body["prompt_logprobs"]) == len(prompt)
    assert body["prompt_logprobs"][1][str(prompt[1])] == {"logprob": -2.0, "rank": 2, "decoded_token": "?"}
    chunks = stream(PATH, messages=HI, return_token_ids=True)
    assert chunks[0]["prompt_token_ids"] == prompt
    assert [token for chunk in chunks for token in chunk["choices"][0].get("token_ids", [])] == tokens


def test_ends_are_told(ask: Ask, stream: Stream, serving: FakeServing) -> None:
    serving.reason, serving.stop_reason = "stop", "!"
    assert ask(PATH, messages=HI, stop="!")["choices"][0]["stop_reason"] == "!"
    serving.reason, serving.stop_reason = "deadline", None
    assert ask(PATH, messages=HI, deadline=0.5)["choices"][0]["finish_reason"] == "deadline"
    assert stream(PATH, messages=HI)[-1]["choices"][0]["finish_reason"] == "deadline"


def test_a_stream_that_breaks_off_says_why(stream: Stream, serving: FakeServing) -> None:
    serving.fails = {"message": "it broke", "type": "server_error", "param": None, "code": None}
    assert stream(PATH, messages=HI)[-1] == {"error": serving.fails}


def test_the_template_gets_what_it_reads(ask: Ask, serving: FakeServing) -> None:
    documents = [{"title": "t", "text": "x"}]
    ask(PATH, messages=HI, documents=documents, chat_template_kwargs={"enable_thinking": False})
    assert serving.rendered[0] == {
        "tools": None,
        "documents": documents,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "variables": {"enable_thinking": False},
    }
    ask(PATH, messages=HI, reasoning_effort="low", chat_template_kwargs={"mood": 1})
    assert serving.rendered[1]["variables"] == {"enable_thinking": True}
    assert serving.ignored == ["chat_template_kwargs.mood"]
    serving.strict = True
    assert ask(PATH, 400, messages=HI, chat_template_kwargs={"mood": 1})["error"]["param"] == "chat_template_kwargs"


def test_prompts_are_cut_at_their_beginning(ask: Ask, serving: FakeServing) -> None:
    whole = serving.tokenizer.encode(RENDERED)
    ask(PATH, messages=HI, truncate_prompt_tokens=3)
    ask(PATH, messages=HI, truncate_prompt_tokens=-1, max_tokens=serving.max_model_len - 2)
    ask(PATH, messages=HI, truncate_prompt_tokens=60)
    assert [call.prompts[0] for call in serving.calls] == [whole[-3:], whole[-2:], whole]
    assert [call.texts[0] for call in serving.calls] == [None, None, RENDERED]
    assert ask(PATH, 400, messages=HI, truncate_prompt_tokens=65)["error"]["param"] == "truncate_prompt_tokens"


def test_ids_tiers_and_users(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="quire.server.openai"):
        body = ask(PATH, messages=HI, request_id="mine", service_tier="auto", user="ann\nforged", metadata={"k": "v"})
    assert (body["id"], body["service_tier"]) == ("chatcmpl-mine", "default")
    assert "r1" in caplog.text
    assert "ann\\nforged" in caplog.text  # a line of the log is one line
    assert "'metadata.k': 'v'" in caplog.text


def test_refusals_have_openais_shape(ask: Ask) -> None:
    error = ask(PATH, 400, messages=HI, temperature=3000)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", "temperature")
    assert ask(PATH, 404, messages=HI, model="gpt")["error"]["param"] == "model"
    assert ask(PATH, 400)["error"]["param"] == "messages"


def test_a_call_without_http(serving: FakeServing) -> None:
    call = asyncio.run(read_call({"messages": HI, "stream": True}, serving, CALLER))  # type: ignore[arg-type]
    assert call.stream
    assert call.writer.whole(serving.outputs(call))["choices"][0]["message"]["content"] == "wörld 🙂!"
    with pytest.raises(InvalidRequest):
        asyncio.run(read_call("x", serving, CALLER))  # type: ignore[arg-type]
    with pytest.raises(QuireError):
        asyncio.run(read_call({"messages": HI, "model": "gpt"}, serving, CALLER))  # type: ignore[arg-type]


def test_what_the_server_tells_of_every_answer(ask: Ask, stream: Stream, serving: FakeServing) -> None:
    serving.config.server = ServerConfig(return_tokens_as_token_ids=True, enable_force_include_usage=True)
    entries = ask(PATH, messages=HI, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert all(entry["token"].startswith("token_id:") for entry in entries)
    *chunks, last = stream(PATH, messages=HI)
    used = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert used == sorted(used)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], used[-1])
