"""What was thought, said and called, as OpenAI's chat messages and their deltas write it."""

from collections.abc import Sequence
from typing import Any

from quire.core.message import AnswerMessage, ToolCall
from quire.protocol.parsers.free_text import free_text
from quire.protocol.parsers.parts import Part
from quire.protocol.parsers.tools import Tools

Body = dict[str, Any]


def chat_message(message: AnswerMessage, tools: Tools, *, legacy: bool = False) -> Body:
    """The `message` of a choice. Thinking has two names: vLLM's older one, which most clients know, and its newer.

    `tools` say how calls are told; `legacy` tells one as `function_call`.
    """
    said = message.content or (None if message.calls or message.reasoning else "")
    body: Body = {"role": "assistant", "content": said, "refusal": None}
    if message.reasoning:
        body |= {"reasoning_content": message.reasoning, "reasoning": message.reasoning}
    if message.calls and legacy:
        body["function_call"] = {"name": message.calls[0].name, "arguments": message.calls[0].arguments}
    elif message.calls:
        body["tool_calls"] = [_call(call, tools) for call in message.calls]
    return body


def chat_deltas(parts: Sequence[Part], tools: Tools, *, legacy: bool = False) -> list[Body]:
    """The `delta`s of chunks: a part each, neighbours of one kind together. Calls of free text have their input."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last is not None and last.kind == part.kind != "call" and last.number == part.number:
            joined[-1] = Part(part.kind, last.text + part.text, part.number)
        else:
            joined.append(part)
    return [_delta(part, tools, legacy) for part in joined]


def _delta(part: Part, tools: Tools, legacy: bool) -> Body:
    if part.kind == "content":
        return {"content": part.text}
    if part.kind == "reasoning":
        return {"reasoning_content": part.text, "reasoning": part.text}
    if legacy:
        named = {"name": part.text, "arguments": ""}
        return {"function_call": named if part.kind == "call" else {"arguments": part.text}}
    if part.kind == "call":
        return {"tool_calls": [{"index": part.number, **_call(ToolCall(part.identity, part.text), tools)}]}
    more = {"custom": {"input": part.text}} if part.kind == "input" else {"function": {"arguments": part.text}}
    return {"tool_calls": [{"index": part.number, **more}]}


def _call(call: ToolCall, tools: Tools) -> Body:
    if tools.is_text(call.name):
        custom = {"name": call.name, "input": free_text(call.arguments)}
        return {"id": call.identity, "type": "custom", "custom": custom}
    return {"id": call.identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
