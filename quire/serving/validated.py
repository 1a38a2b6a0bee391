"""Validated: a generation whose finished texts are validated by a JSON schema before its end is told."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from quire.core.outputs import CompletionOutput, Delta, RequestOutput
from quire.protocol.parsers.reading import Reading
from quire.serving.running import Running

HEADER = "x-quire-schema"
_MOST_NAMED = 8
_LONGEST_NAME = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_./$~-]")
Validate = Callable[[str, str], Awaitable[str | None]]
"""What is wrong with a text by a schema, if anything."""


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """A schema that a grammar holds answers to only in part."""

    schema: str
    left_out: tuple[str, ...]
    """JSON pointers to what the grammar leaves out."""
    reading: Reading = field(default_factory=Reading)
    """Tells the content of a text from its thinking and calls."""

    def header(self) -> dict[str, str]:
        """How clients hear of it before there is a text."""
        names = [_UNSAFE.sub("?", pointer[:_LONGEST_NAME]) for pointer in self.left_out[:_MOST_NAMED]]
        return {HEADER: "partial; left out: " + ", ".join(names)}

    async def error_of(self, sequence: CompletionOutput, validate: Validate) -> str | None:
        """What is wrong with a sequence; one that was cut off says so itself, and calls are no content."""
        if sequence.finish_reason != "stop":
            return None
        message = self.reading.message(sequence.index, sequence.text)
        return None if message.calls else await validate(self.schema, message.content)


class Validated:
    """Another generation, and a check at its end."""

    def __init__(self, inner: Running, check: SchemaCheck, validate: Validate) -> None:
        self._inner = inner
        self._check = check
        self._validate = validate
        self._errors: list[list[str | None]] = []

    @property
    def on_drop(self) -> Callable[[], None] | None:
        return self._inner.on_drop

    @on_drop.setter
    def on_drop(self, cut: Callable[[], None] | None) -> None:
        self._inner.on_drop = cut

    async def accepted(self) -> None:
        await self._inner.accepted()

    async def deltas(self, idle: float | None = None) -> AsyncIterator[list[Delta]]:
        async for deltas in self._inner.deltas(idle):
            yield deltas
        await self._finish()

    async def wait(self) -> list[RequestOutput]:
        await self._inner.wait()
        await self._finish()
        return self.outputs()

    def outputs(self) -> list[RequestOutput]:
        outputs = self._inner.outputs()
        for output, errors in zip(outputs, self._errors, strict=False):
            for sequence, error in zip(output.outputs, errors, strict=True):
                sequence.schema_error = error
        return outputs

    def cancel(self) -> None:
        self._inner.cancel()

    async def _finish(self) -> None:
        self._errors = [
            [await self._check.error_of(sequence, self._validate) for sequence in output.outputs]
            for output in self._inner.outputs()
        ]
