"""Tools on the default model, whose own chat template has no place for them: how many calls, and what is said.

A grammar and a parser decide both, whatever the model would say, so every seed must do.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from quire import LLM, SamplingParams
from quire.core.message import AnswerMessage

FEW, MANY = range(6), range(100)
seeds = pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Paris and in Oslo?"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}},
    "required": ["city"],
    "additionalProperties": False,
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "get_time", "parameters": NOTHING}},
]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    llm = LLM("smollm2")
    yield llm
    llm.close()


def answers(llm: LLM, lengths: dict[int, int], **asked: Any) -> list[AnswerMessage]:
    """One for each seed, of at most so many tokens."""
    params = [SamplingParams(seed=seed, max_tokens=most) for seed, most in lengths.items()]
    outputs = llm.chat([QUESTION] * len(params), params, tools=TOOLS, use_tqdm=False, **asked)
    messages = [output.outputs[0].message for output in outputs]
    assert None not in messages
    return messages  # type: ignore[return-value]


@seeds
def test_a_function_asked_for_by_name_is_called_once(llm: LLM, seeds: range) -> None:
    found = answers(llm, dict.fromkeys(seeds, 120), tool_choice=NAMED)
    assert [[call.name for call in message.calls] for message in found] == [["get_weather"]] * len(seeds)
    assert {tuple(json.loads(message.calls[0].arguments)) for message in found} == {("city",)}
    assert {message.content for message in found} == {""}


@seeds
def test_one_call_at_most(llm: LLM, seeds: range) -> None:
    found = answers(llm, dict.fromkeys(seeds, 120), tool_choice="required", parallel_tool_calls=False)
    assert {len(message.calls) for message in found} == {1}
    free = answers(llm, dict.fromkeys(seeds, 40), parallel_tool_calls=False)
    assert max(len(message.calls) for message in free) <= 1


@seeds
def test_a_marker_that_is_cut_in_two_is_not_said(llm: LLM, seeds: range) -> None:
    """Calls are all there is to these answers, so whatever else is said is a piece of markup."""
    found = answers(llm, {seed: 1 + seed * 7 % 44 for seed in seeds}, tool_choice="required")
    assert {(message.content, message.reasoning) for message in found} == {("", "")}
