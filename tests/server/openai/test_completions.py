"""Completions: several prompts, echoes, and logprobs with the right places in the text."""

import json
from pathlib import Path
from typing import Any

import pytest

from quire.core.sampling_params import SamplingParams
from tests.server.openai.conftest import Ask, Stream
from tests.server.openai.fake_serving import GAP, FakeServing, fake_client

PATH = "/v1/completions"
SAID = "wörld 🙂!"


def text_of(chunks: list[dict[str, Any]]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


def test_a_whole_answer(ask: Ask, serving: FakeServing) -> None:
    body = ask(PATH, prompt="Hello", max_tokens=9)
    assert (body["id"], body["object"], body["model"]) == ("cmpl-r1", "text_completion", "tiny")
    about = dict.fromkeys(("logprobs", "stop_reason", "token_ids", "prompt_token_ids", "prompt_logprobs"))
    assert body["choices"] == [{"index": 0, "text": SAID, "finish_reason": "stop", **about}]
    (call,) = serving.calls
    assert (call.texts, call.params) == (["Hello"], SamplingParams(max_tokens=9))
    assert call.prompts == [serving.tokenizer.encode("Hello")]
    assert body["usage"]["prompt_tokens"] == len(call.prompts[0])


def test_a_stream(stream: Stream) -> None:
    chunks = stream(PATH, prompt="Hello", stream_options={"include_usage": True})
    assert text_of(chunks) == {0: SAID}
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    *_, last, usage = chunks
    assert last["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop", "stop_reason": None}]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] > 0
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


def test_choices_of_several_prompts_are_numbered_through(ask: Ask, stream: Stream, serving: FakeServing) -> None:
    serving.says = ("one", "two")
    prompts = ["Hello", [5, 6, 7], "Bye"]
    body = ask(PATH, prompt=prompts, n=2)
    assert [choice["index"] for choice in body["choices"]] == list(range(6))
    assert [choice["text"] for choice in body["choices"]] == ["one", "two"] * 3
    assert serving.calls[0].prompts[1] == [5, 6, 7]
    assert serving.calls[0].texts == ["Hello", None, "Bye"]
    assert body["usage"]["prompt_tokens"] == sum(map(len, serving.calls[0].prompts))
    assert set(body["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}  # as OpenAI's completions
    assert text_of(stream(PATH, prompt=prompts, n=2)) == dict(enumerate(["one", "two"] * 3))


def test_an_echo_stands_before_the_answer(ask: Ask, stream: Stream, serving: FakeServing) -> None:
    tokens = serving.tokenizer.encode("Hello ")
    for prompt in ("Hello ", tokens):
        assert ask(PATH, prompt=prompt, echo=True)["choices"][0]["text"] == "Hello " + SAID
        assert text_of(stream(PATH, prompt=prompt, echo=True, n=2)) == dict.fromkeys((0, 1), "Hello " + SAID)
    cut = ask(PATH, prompt="Hello there", echo=True, truncate_prompt_tokens=1)["choices"][0]["text"]
    assert cut == serving.tokenizer.decode(serving.tokenizer.encode("Hello there")[-1:]) + SAID


def test_logprobs_say_where_tokens_stand(ask: Ask, stream: Stream) -> None:
    whole = ask(PATH, prompt="Hello", logprobs=3)["choices"][0]
    found = whole["logprobs"]
    assert {len(values) for values in found.values()} == {len(found["tokens"])}
    pairs = list(zip(found["tokens"], found["text_offset"], strict=True))
    for token, offset in pairs[:-1]:  # the last is the end token, which is no part of the text
        if not token.startswith("bytes:"):
            assert SAID.startswith(token, offset)
    assert any(token.startswith("bytes:\\xf0") for token, _ in pairs)
    assert pairs[-1] == ("<|im_end|>", len(SAID))
    assert set(found["token_logprobs"]) == {-2.0}
    assert all(len(top) == 3 for top in found["top_logprobs"])
    pieces = [chunk["choices"][0]["logprobs"] for chunk in stream(PATH, prompt="Hello", logprobs=3)]
    for name, values in found.items():
        assert [value for piece in pieces if piece for value in piece[name]] == values


def test_an_echo_has_the_prompts_logprobs_in_front(ask: Ask, serving: FakeServing) -> None:
    choice = ask(PATH, prompt="Hello ", echo=True, logprobs=2)["choices"][0]
    prompt, found = serving.calls[0].prompts[0], choice["logprobs"]
    assert serving.calls[0].params.prompt_logprobs == 2
    assert choice["prompt_logprobs"] is None
    assert found["token_logprobs"][:2] == [None, -2.0]
    assert found["top_logprobs"][0] is None
    assert "".join(found["tokens"][: len(prompt)]) == "Hello "
    assert found["text_offset"][len(prompt)] == len("Hello ")
    assert len(found["tokens"]) > len(prompt)


def test_a_prompt_alone(ask: Ask, stream: Stream, serving: FakeServing) -> None:
    body = ask(PATH, prompt="Hello", echo=True, max_tokens=0, logprobs=1, return_token_ids=True)
    (choice,) = body["choices"]
    prompt = serving.calls[0].prompts[0]
    assert serving.calls[0].params.max_tokens == 1
    assert (choice["text"], choice["finish_reason"], choice["token_ids"]) == ("Hello", "length", [])
    assert len(choice["logprobs"]["tokens"]) == len(prompt)
    assert choice["prompt_token_ids"] == prompt
    assert body["usage"]["completion_tokens"] == 0
    chunks = stream(PATH, prompt="Hello", echo=True, max_tokens=0, stream_options={"include_usage": True})
    assert text_of(chunks) == {0: "Hello"}
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["usage"]["completion_tokens"] == 0


def test_token_ids_in_a_stream(stream: Stream, serving: FakeServing) -> None:
    chunks = stream(PATH, prompt=["Hello", "Bye"], return_token_ids=True)
    for index in (0, 1):
        choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert choices[0]["prompt_token_ids"] == serving.calls[0].prompts[index]
        tokens = [token for choice in choices for token in choice.get("token_ids", [])]
        assert serving.tokenizer.decode(tokens) == SAID


def test_special_tokens_may_be_left_off(ask: Ask, serving: FakeServing) -> None:
    ask(PATH, prompt="Hello", add_special_tokens=False)
    assert serving.calls[0].prompts == [serving.tokenizer.encode("Hello", add_special_tokens=False)]


@pytest.fixture
def filling(tmp_path: Path) -> FakeServing:
    """A model that knows how to fill gaps."""
    return FakeServing(tmp_path, *GAP)


def test_a_gap_is_filled(filling: FakeServing) -> None:
    client, tokenizer = fake_client(filling), filling.tokenizer
    before = tokenizer.encode("def f")
    body = {"prompt": ["a = ", before, ""], "suffix": "\nb", "n": 2, "stop_token_ids": [7], "max_tokens": 9}
    answer = client.post(PATH, json=body).json()
    assert [choice["text"] for choice in answer["choices"]] == [SAID] * 6
    (call,) = filling.calls
    shown = [tokenizer.decode(prompt, skip_special_tokens=False) for prompt in call.prompts]
    prompts = [f"<|fim_prefix|>{each}<|fim_suffix|>\nb<|fim_middle|>" for each in ("a = ", "def f", "")]
    assert shown == prompts
    assert call.prompts[1][1 : 1 + len(before)] == before
    assert call.texts == [None] * 3
    assert call.params == SamplingParams(
        n=2, max_tokens=9, stop_token_ids=(7, tokenizer.token_to_id("<|file_sep|>") or 0)
    )


def test_a_gap_is_filled_in_a_stream_and_behind_an_echo(filling: FakeServing) -> None:
    client, tokenizer = fake_client(filling), filling.tokenizer
    for prompt in ("a = ", tokenizer.encode("a = ")):
        body = {"prompt": prompt, "suffix": "b", "echo": True}
        assert client.post(PATH, json=body).json()["choices"][0]["text"] == "a = " + SAID
        lines = client.post(PATH, json={**body, "stream": True}).text.removesuffix("\n\n").split("\n\n")
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        assert text_of(chunks) == {0: "a = " + SAID}
        assert filling.calls[-1].prompts == filling.calls[-2].prompts


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"truncate_prompt_tokens": 4}, "truncate_prompt_tokens"),
        ({"use_beam_search": True, "n": 2}, "suffix"),
        ({"echo": True, "logprobs": 1}, "echo"),
    ],
)
def test_what_does_not_go_with_a_gap(filling: FakeServing, given: dict[str, Any], param: str) -> None:
    answer = fake_client(filling).post(PATH, json={"prompt": "a", "suffix": "b", **given})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert filling.calls == []


def test_a_model_that_fills_no_gaps_says_so(ask: Ask, serving: FakeServing) -> None:
    error = ask(PATH, 400, prompt="x", suffix="y")["error"]
    assert (error["param"], "no tokens for filling gaps" in error["message"]) == ("suffix", True)
    ask(PATH, prompt="x", suffix="")  # as clients send it that have none
    assert serving.calls[0].prompts == [serving.tokenizer.encode("x")]


@pytest.mark.parametrize(
    ("given", "param"),
    [({}, "prompt"), ({"prompt": "\x00" * 4_000_001}, "prompt")],
)
def test_refusals(ask: Ask, given: dict[str, Any], param: str) -> None:
    assert ask(PATH, 400, **given)["error"]["param"] == param
