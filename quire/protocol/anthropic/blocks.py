"""The blocks of an answer in Anthropic's shapes, as they grow: thinking, text and tool_use, in the order they came."""

import json
from collections.abc import Sequence
from typing import Any

from quire.protocol.parsers.parts import Part
from quire.protocol.writer import Body

_KINDS = {"content": "text", "reasoning": "thinking"}
_DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}


class Blocks:
    """Blocks so far; `take` and `close` give the events that tell of what is new."""

    def __init__(self) -> None:
        self._blocks: list[Body] = []
        self._texts: list[str] = []
        """What each block says; of a tool_use, its input as JSON."""
        self._is_open = False

    @property
    def has_calls(self) -> bool:
        return any(block["type"] == "tool_use" for block in self._blocks)

    def whole(self) -> list[Body]:
        """All blocks, finished."""
        return [_filled(block, text) for block, text in zip(self._blocks, self._texts, strict=True)]

    def take(self, parts: Sequence[Part]) -> list[Body]:
        events: list[Body] = []
        for part in parts:
            if part.kind == "call":
                events += self._begin({"type": "tool_use", "id": part.identity, "name": part.text, "input": {}})
                continue
            kind = _KINDS.get(part.kind, "tool_use")
            if not self._is_open or self._blocks[-1]["type"] != kind:
                events += self.open_text() if kind == "text" else self._begin({"type": kind, kind: "", "signature": ""})
            self._texts[-1] += part.text
            field = "partial_json" if kind == "tool_use" else kind
            events.append(self._event("content_block_delta", delta={"type": _DELTAS[kind], field: part.text}))
        return events

    def open_text(self) -> list[Body]:
        return self._begin({"type": "text", "text": ""})

    def close(self) -> list[Body]:
        """The end of the block that is open, if any."""
        if not self._is_open:
            return []
        self._is_open = False
        return [self._event("content_block_stop")]

    def _begin(self, block: Body) -> list[Body]:
        events = self.close()
        self._blocks.append(block)
        self._texts.append("")
        self._is_open = True
        return [*events, self._event("content_block_start", content_block=dict(block))]

    def _event(self, kind: str, **fields: Any) -> Body:
        return {"type": kind, "index": len(self._blocks) - 1, **fields}


def _filled(block: Body, text: str) -> Body:
    if block["type"] != "tool_use":
        return {**block, block["type"]: text}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # the model did not finish it
        found = {}
    return {**block, "input": found if isinstance(found, dict) else {}}
