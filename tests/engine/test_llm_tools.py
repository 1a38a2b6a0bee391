"""Tools and thinking in `LLM.chat`, on a tiny model that is held to its calls."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import LLM, InvalidRequest, SamplingParams

TEMPLATE = Path(__file__).parents[1] / "protocol" / "parsers" / "short.jinja"
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
SCHEMA = {
    "type": "object",
    "properties": {"unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["unit"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
LONG = SamplingParams(temperature=0, max_tokens=120)


@pytest.fixture(scope="module")
def llm(tiny_chat: Path) -> Iterator[LLM]:
    llm = LLM(str(tiny_chat), chat_template=str(TEMPLATE), num_gpu_blocks_override=64)
    yield llm
    llm.close()


def test_a_call_that_must_be_made(llm: LLM) -> None:
    asked: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    [output] = llm.chat(QUESTION, LONG, **asked, thinking_token_budget=2, use_tqdm=False)
    [sequence] = output.outputs
    assert sequence.message is not None
    [call] = sequence.message.calls
    assert call.name == "get_weather"
    assert json.loads(call.arguments)["unit"] in ("celsius", "fahrenheit")
    assert sequence.message.content == ""
    assert "<tool_call>" in sequence.text


def test_thinking_has_a_budget(llm: LLM) -> None:
    [output] = llm.chat(
        QUESTION,
        SamplingParams(temperature=0, max_tokens=40, ignore_eos=True),
        thinking_token_budget=3,
        chat_template_kwargs={"enable_thinking": True},
        use_tqdm=False,
    )
    [sequence] = output.outputs
    assert sequence.message is not None
    end = llm.get_tokenizer().encode("</think>", add_special_tokens=False)
    assert sequence.token_ids[3 : 3 + len(end)] == end
    assert sequence.message.content.strip() == sequence.text.split("</think>", 1)[1].strip()


def test_a_chat_without_either_has_its_text_as_content(llm: LLM) -> None:
    [output] = llm.chat(QUESTION, SamplingParams(temperature=0, max_tokens=5), use_tqdm=False)
    message = output.outputs[0].message
    assert message is not None
    assert (message.content, message.reasoning, message.calls) == (output.outputs[0].text, "", [])


def test_what_cannot_be_honoured_is_refused(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="no tools"):
        llm.chat(QUESTION, tool_choice="required", use_tqdm=False)
    with pytest.raises(InvalidRequest, match="reasoning_effort"):
        llm.chat(QUESTION, reasoning_effort="some", use_tqdm=False)
    with pytest.raises(InvalidRequest, match="name"):
        llm.chat(QUESTION, tools=[{"type": "function", "function": {}}], use_tqdm=False)
