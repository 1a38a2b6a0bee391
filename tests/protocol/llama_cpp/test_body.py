"""llama.cpp's bodies: what they become, and what is refused by name."""

import json
from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.protocol.ignored import Ignored
from quire.protocol.llama_cpp.body import read_completion_body, read_infill_body


def test_a_prompt_with_llama_cpps_own_defaults() -> None:
    body = read_completion_body({"prompt": "x"})
    assert body.prompt == ["x"]
    assert body.asked.params == SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, max_tokens=None)
    assert not body.asked.stream


@pytest.mark.parametrize(
    ("given", "found"),
    [([1, 2], [[1, 2]]), ([1, "a", 2, 3], [[1], "a", [2, 3]]), ([[5, 6]], [[5, 6]]), (["a"], ["a"])],
)
def test_prompts_may_mix_texts_and_tokens(given: Any, found: Any) -> None:
    assert read_completion_body({"prompt": given}).prompt == found


def test_fields_become_sampling_parameters() -> None:
    given = {
        "n_predict": 9,
        "n_probs": 3,
        "seed": 5,
        "stop": ["a"],
        "repeat_penalty": 1.3,
        "ignore_eos": True,
        "cache_prompt": False,
        "logit_bias": [[3, 1.5], [4, False]],
        "id_slot": -1,
    }
    asked = read_completion_body({"prompt": "x", **given}).asked
    params = asked.params
    assert list(asked.ignored) == ["id_slot"]
    assert (params.max_tokens, params.logprobs, params.seed, params.stop) == (9, 3, 5, ("a",))
    assert (params.repetition_penalty, params.ignore_eos, params.use_prefix_cache) == (1.3, True, False)
    assert params.logit_bias == {3: 1.5, 4: -100.0}


@pytest.mark.parametrize("samplers", [["top_k", "temperature", "xtc"], "kt"])
def test_samplers_that_are_not_listed_are_off(samplers: object) -> None:
    given = {"prompt": "x", "temperature": 0.5, "top_p": 0.5, "repeat_penalty": 1.3, "samplers": samplers}
    params = read_completion_body(given).asked.params
    assert (params.temperature, params.top_k) == (0.5, 40)
    assert (params.top_p, params.min_p, params.repetition_penalty) == (1.0, 0.0, 1.0)


def test_a_strict_server_refuses_hints() -> None:
    with pytest.raises(InvalidRequest, match="id_slot is not supported"):
        read_completion_body({"prompt": "x", "id_slot": 1}, Ignored(strict=True))
    extra = [{"text": "x", "size": 1}]
    with pytest.raises(InvalidRequest, match=r"input_extra\[0\].size is not supported"):
        read_infill_body({"input_prefix": "", "input_suffix": "", "input_extra": extra}, Ignored(strict=True))


def test_grammars_and_schemas() -> None:
    asked = read_completion_body({"prompt": "x", "grammar": 'root ::= "a"'}).asked
    assert asked.params.structured is not None
    assert (asked.params.structured.grammar, asked.structured_field) == ('root ::= "a"', "grammar")
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}
    structured = read_completion_body({"prompt": "x", "json_schema": schema}).asked.params.structured
    assert structured is not None
    assert structured.json is not None
    inner = {"type": "object", "properties": {}, "additionalProperties": False}
    assert json.loads(structured.json) == {"type": "object", "properties": {"a": inner}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"mirostat": 1}, "mirostat"),
        ({"xtc_probability": 0.5}, "xtc_probability"),
        ({"logit_bias": [["Hello", 1]]}, "logit_bias"),
        ({"logit_bias": "x"}, "logit_bias"),
        ({"grammar": "a", "json_schema": {"type": "object"}}, "json_schema"),
        ({"n_predict": 0}, "n_predict"),
        ({"samplers": [1]}, "samplers"),
        ({"n_cmpl": 2}, "n_cmpl"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_completion_body({"prompt": "x", **given})
    assert caught.value.field == field


def test_a_gap() -> None:
    extra = [{"filename": "a.py", "text": "x"}, {"text": "y"}]
    body = read_infill_body({"input_prefix": "p", "input_suffix": "", "prompt": "b", "input_extra": extra})
    assert (body.prefix, body.suffix, body.begun, body.extra) == ("p", "", "b", [("a.py", "x"), ("tmp", "y")])
    with pytest.raises(InvalidRequest, match="input_suffix is missing"):
        read_infill_body({"input_prefix": "p"})
