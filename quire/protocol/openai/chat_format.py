"""What was thought, said and called, as OpenAI's chat messages and their deltas write it."""

from collections.abc import Sequence
from typing import Any

from quire.core.message import AnswerMessage
from quire.protocol.parsers.parts import Part

Body = dict[str, Any]


def chat_message(message: AnswerMessage, *, legacy: bool = False) -> Body:
    """The `message` of a choice. Thinking has two names: vLLM's older one, which most clients know, and its newer.

    `legacy` tells a call as `function_call`.
    """
    said = message.content or (None if message.calls or message.reasoning else "")
    body: Body = {"role": "assistant", "content": said, "refusal": None}
    if message.reasoning:
        body |= {"reasoning_content": message.reasoning, "reasoning": message.reasoning}
    if message.calls and legacy:
        body["function_call"] = {"name": message.calls[0].name, "arguments": message.calls[0].arguments}
    elif message.calls:
        body["tool_calls"] = [
            {"id": call.identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return body


def chat_deltas(parts: Sequence[Part], *, legacy: bool = False) -> list[Body]:
    """The `delta`s of chunks: a part each, neighbours of one kind together."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last is not None and last.kind == part.kind != "call" and last.number == part.number:
            joined[-1] = Part(part.kind, last.text + part.text, part.number)
        else:
            joined.append(part)
    return [_delta(part, legacy) for part in joined]


def _delta(part: Part, legacy: bool) -> Body:
    if part.kind == "content":
        return {"content": part.text}
    if part.kind == "reasoning":
        return {"reasoning_content": part.text, "reasoning": part.text}
    if legacy:
        named = {"name": part.text, "arguments": ""}
        return {"function_call": named if part.kind == "call" else {"arguments": part.text}}
    if part.kind == "call":
        function = {"name": part.text, "arguments": ""}
        return {"tool_calls": [{"index": part.number, "id": part.identity, "type": "function", "function": function}]}
    return {"tool_calls": [{"index": part.number, "function": {"arguments": part.text}}]}
