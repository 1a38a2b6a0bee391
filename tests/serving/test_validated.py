"""A generation whose texts are validated at its end: before that is told, and only what is finished content."""

import asyncio
from collections.abc import AsyncIterator

from quire.core.outputs import CompletionOutput, Delta, RequestMetrics, RequestOutput
from quire.core.status import FinishReason
from quire.protocol.parsers.choose import CALL_FORMATS, THINKINGS
from quire.protocol.parsers.reading import Reading
from quire.protocol.parsers.tools import Function, Tools
from quire.serving.validated import HEADER, SchemaCheck, Validated

READING = Reading(THINKINGS["qwen3"], form=CALL_FORMATS["hermes"], tools=Tools((Function("now"),)))


class Said:
    """A generation of one prompt that is over."""

    def __init__(self, *texts: tuple[str, FinishReason]) -> None:
        sequences = [CompletionOutput(index, text, finish_reason=reason) for index, (text, reason) in enumerate(texts)]
        self._output = RequestOutput("r", None, [1], None, sequences, True, RequestMetrics(0.0))
        self.on_drop = None
        self.is_cancelled = False

    async def accepted(self) -> None:
        pass

    async def deltas(self, idle: float | None = None) -> AsyncIterator[list[Delta]]:
        yield [Delta(0, 0, "x", [1], None, "stop", None)]

    async def wait(self) -> list[RequestOutput]:
        return self.outputs()

    def outputs(self) -> list[RequestOutput]:
        return [self._output]

    def cancel(self) -> None:
        self.is_cancelled = True


async def refuse(schema: str, text: str) -> str | None:
    return f"{schema} {text}"


def errors(outputs: list[RequestOutput]) -> list[str | None]:
    return [sequence.schema_error for output in outputs for sequence in output.outputs]


def test_whole() -> None:
    inner = Said(("1", "stop"), ("2", "length"), ("3", "stop"))
    validated = Validated(inner, SchemaCheck("S", ("/not",)), refuse)
    assert errors(asyncio.run(validated.wait())) == ["S 1", None, "S 3"]


def test_streamed() -> None:
    async def read() -> list[str | None]:
        validated = Validated(Said(("1", "stop")), SchemaCheck("S", ("/not",)), refuse)
        async for _ in validated.deltas():
            pass
        return errors(validated.outputs())

    assert asyncio.run(read()) == ["S 1"]


def test_thinking_is_no_content_and_calls_are_none_either() -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    inner = Said(("<think>hm</think>1", "stop"), (call, "stop"))
    assert errors(asyncio.run(Validated(inner, SchemaCheck("S", (), READING), refuse).wait())) == ["S 1", None]


def test_the_rest_is_the_other_ones() -> None:
    inner = Said(("1", "stop"))
    validated = Validated(inner, SchemaCheck("S", ()), refuse)
    validated.on_drop = validated.cancel
    assert inner.on_drop is not None
    inner.on_drop()
    assert inner.is_cancelled


def test_the_header_is_plain_and_short() -> None:
    check = SchemaCheck("S", ("/properties/a b\r\nx-evil: 1/not", *(f"/{place}" for place in range(20))))
    value = check.header()[HEADER]
    assert value.startswith("partial; left out: /properties/a?b??x-evil??1/not, /0, /1")
    assert value.isascii()
    assert len(value) < 700
