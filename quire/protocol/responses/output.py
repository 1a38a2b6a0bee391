"""The output of a response as it grows: items of thinking, messages and calls, and the events that tell of them."""

from collections.abc import Callable, Sequence
from typing import Any

from quire.protocol.ids import new_id
from quire.protocol.parsers.free_text import TextCalls
from quire.protocol.parsers.parts import Part
from quire.protocol.parsers.tools import Tools
from quire.protocol.responses.call_items import CALLS
from quire.protocol.responses.items import Item, output_item, output_part

Step = tuple[str, dict[str, Any]]
"""The type of an event and its fields."""


Seal = Callable[[str], str]


class Output:
    """Items so far. What it gives out are events, in the order in which they are sent."""

    def __init__(self, tools: Tools, seal: Seal | None = None) -> None:
        """`tools` say how calls are told; `seal` makes of thinking what a client may send back unread."""
        self.items: list[Item] = []
        self._tools = tools
        self._texts = TextCalls(tools)
        self._seal = seal
        self._is_open = False

    def take(self, parts: Sequence[Part], logprobs: Sequence[Item] = ()) -> list[Step]:
        """More of the answer; `logprobs` are those of its text."""
        steps: list[Step] = []
        for part in self._texts.take(parts):
            if part.kind == "call":
                steps += self._begin(self._call(part))
            elif part.kind == "arguments":
                self.items[-1]["arguments"] += part.text
                steps.append(self._step("function_call_arguments.delta", delta=part.text))
            elif part.kind == "input":
                steps.append(self._input(part.text))
            elif part.kind == "reasoning":
                steps += self._say("reasoning", "reasoning_text.delta", part.text, {})
            else:
                steps += self._say("message", "output_text.delta", part.text, {"logprobs": list(logprobs)})
                logprobs = ()
        return steps

    def open_message(self) -> list[Step]:
        """Begin a message before any of it is there."""
        return self._begin(output_item(new_id("msg_"), "", "in_progress"))

    def close(self, status: str = "completed") -> list[Step]:
        """The end of the item that is open; an answer that said nothing is an empty message."""
        steps = [] if self.items else self.open_message()
        if not self._is_open:
            return steps
        self._is_open = False
        item = self.items[-1]
        item["status"] = status
        if item["type"] == "function_call":
            done = {"arguments": item["arguments"], "name": item["name"]}
            steps.append(self._step("function_call_arguments.done", **done))
        elif item["type"] == "custom_tool_call":
            steps += [self._input(part.text) for part in self._texts.end()]
            steps.append(self._step("custom_tool_call_input.done", input=item["input"]))
        else:
            part = item["content"][0]
            kind = "reasoning_text.done" if item["type"] == "reasoning" else "output_text.done"
            more = {"logprobs": part["logprobs"]} if item["type"] == "message" else {}
            steps.append(self._step(kind, content_index=0, text=part["text"], **more))
            steps.append(self._step("content_part.done", content_index=0, part=dict(part)))
            if item["type"] == "reasoning" and self._seal is not None:
                item["encrypted_content"] = self._seal(part["text"])
        return [*steps, self._step_of_item("output_item.done")]

    def _say(self, kind: str, event: str, text: str, more: dict[str, Any]) -> list[Step]:
        steps: list[Step] = []
        if not self._is_open or self.items[-1]["type"] != kind:
            begun = _reasoning() if kind == "reasoning" else output_item(new_id("msg_"), "", "in_progress")
            steps = self._begin(begun)
        part = self.items[-1]["content"][0]
        part["text"] += text
        if more:
            part["logprobs"] += more["logprobs"]
        return [*steps, self._step(event, content_index=0, delta=text, **more)]

    def _begin(self, item: Item) -> list[Step]:
        steps = self.close() if self._is_open else []
        self.items.append(item)
        self._is_open = True
        if item["type"] in CALLS:
            return [*steps, self._step_of_item("output_item.added")]
        part = output_part("") if item["type"] == "message" else {"type": "reasoning_text", "text": ""}
        added = self._step_of_item("output_item.added")
        added[1]["item"]["content"] = []
        return [*steps, added, self._step("content_part.added", content_index=0, part=part)]

    def _call(self, part: Part) -> Item:
        function = self._tools.get(part.text)
        is_text = function is not None and function.is_text
        kind, prefix = ("custom_tool_call", "ctc_") if is_text else ("function_call", "fc_")
        about: Item = {"id": new_id(prefix), "type": kind, "status": "in_progress", "call_id": part.identity}
        about["name"] = part.text if function is None else function.own_name
        if function is not None and function.namespace is not None:
            about["namespace"] = function.namespace
        return about | ({"input": ""} if is_text else {"arguments": ""})

    def _input(self, text: str) -> Step:
        self.items[-1]["input"] += text
        return self._step("custom_tool_call_input.delta", delta=text)

    def _step_of_item(self, kind: str) -> Step:
        return f"response.{kind}", {"output_index": len(self.items) - 1, "item": dict(self.items[-1])}

    def _step(self, kind: str, **fields: Any) -> Step:
        about = {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
        return f"response.{kind}", {**about, **fields}


def _reasoning() -> Item:
    content = [{"type": "reasoning_text", "text": ""}]
    return {"id": new_id("rs_"), "type": "reasoning", "status": "in_progress", "summary": [], "content": content}
