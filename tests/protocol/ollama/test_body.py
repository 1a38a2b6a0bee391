"""Ollama's bodies: what they become, and what is refused by name."""

import json
from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.protocol.ignored import Ignored
from quire.protocol.ollama.body import read_chat_body, read_embed_body, read_generate_body, tagged, untagged

USER = {"role": "user", "content": "Hi"}
USUAL = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "max_tokens": None}


def test_a_chat_is_streamed_with_ollamas_own_defaults() -> None:
    body = read_chat_body({"model": "m", "messages": [USER]})
    assert (body.asked.model, body.asked.stream, body.asked.think) == ("m", True, None)
    assert body.asked.params == SamplingParams(**USUAL)
    assert body.messages == [USER]


def test_options_become_sampling_parameters() -> None:
    options = {
        "num_predict": 5,
        "temperature": 0,
        "top_k": 3,
        "top_p": 0.5,
        "min_p": 0.1,
        "seed": 7,
        "stop": ["a", "b"],
        "repeat_penalty": 1.2,
        "presence_penalty": 1,
        "num_ctx": 4096,
        "num_gpu": 99,
        "use_mmap": True,
    }
    params = read_generate_body({"prompt": "x", "options": options}).asked.params
    assert params == SamplingParams(
        max_tokens=5, temperature=0, top_k=3, top_p=0.5, min_p=0.1, seed=7, stop=("a", "b"),
        repetition_penalty=1.2, presence_penalty=1,
    )  # fmt: skip


def test_hints_about_loading_are_noted() -> None:
    ignored = Ignored()
    read_chat_body({"messages": [{**USER, "x": 1}], "keep_alive": "5m", "options": {"num_ctx": 8}, "y": 1}, ignored)
    assert list(ignored) == ["y", "keep_alive", "options.num_ctx", "messages[].x"]
    for body in ({"keep_alive": 1}, {"options": {"num_ctx": 8}}, {"y": 1}, {"messages": [{**USER, "x": 1}]}):
        with pytest.raises(InvalidRequest):
            read_chat_body({"messages": [USER], **body}, Ignored(strict=True))


@pytest.mark.parametrize(("given", "found"), [({"num_predict": -1, "seed": -1}, {}), ({"num_predict": -2}, {})])
def test_negative_numbers_mean_no_limit_and_no_seed(given: dict[str, Any], found: dict[str, Any]) -> None:
    assert read_chat_body({"messages": [USER], "options": given}).asked.params == SamplingParams(**{**USUAL, **found})


def test_no_last_tokens_turn_penalties_off() -> None:
    options = {"repeat_last_n": 0, "repeat_penalty": 1.5, "presence_penalty": 1}
    assert read_chat_body({"messages": [USER], "options": options}).asked.params == SamplingParams(**USUAL)


def test_calls_and_results_are_read_as_templates_want_them() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    said = [
        USER,
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_name": "f"},
    ]
    body = read_chat_body({"messages": said, "tools": [{"function": {"name": "f", "parameters": {"type": "object"}}}]})
    assert body.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert body.messages[1]["thinking"] == "hm"
    assert body.messages[2]["name"] == "f"
    assert [function.name for function in body.tools.functions] == ["f"]


@pytest.mark.parametrize("form", ["json", {"type": "object", "properties": {"a": {"type": "string"}}}])
def test_a_format_is_structured_output(form: Any) -> None:
    structured = read_chat_body({"messages": [USER], "format": form}).asked.params.structured
    assert structured is not None
    if form == "json":
        assert structured.json_object
    else:
        assert structured.json is not None
        # llama.cpp, and so Ollama, allows no other properties unless the schema does
        assert json.loads(structured.json) == {**form, "additionalProperties": False}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"options": {"mirostat": 2}}, "options"),
        ({"options": {"num_predict": 0}}, "num_predict"),
        ({"options": {"temperature": "hot"}}, "temperature"),
        ({"format": 5}, "format"),
        ({"think": "a lot"}, "think"),
        ({"messages": [{"role": "user", "content": "x", "images": "aGk="}]}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_chat_body({"messages": [USER], **given})
    assert caught.value.field == field


def test_a_prompt_with_all_that_goes_with_it() -> None:
    body = read_generate_body({"prompt": "x", "system": "s", "raw": True, "context": [1, 2], "stream": False})
    assert (body.prompt, body.system, body.raw, body.context, body.asked.stream) == ("x", "s", True, [1, 2], False)
    with pytest.raises(InvalidRequest) as caught:
        read_generate_body({"prompt": "x", "template": "{{ .Prompt }}"})
    assert caught.value.field == "template"


def test_texts_to_embed() -> None:
    assert read_embed_body({"input": "a"}).inputs == ["a"]
    assert read_embed_body({"input": ["a", "b"], "truncate": False}).truncate is False
    assert read_embed_body({"input": []}).inputs == []


def test_names_have_tags() -> None:
    assert (tagged("m"), tagged("m:1b"), untagged("m:latest"), untagged("m:1b")) == ("m:latest", "m:1b", "m", "m:1b")
