"""The lines of a batch's input file, one request each, in OpenAI's format. A bad line never ends the reading."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from quire.core.errors import InvalidRequest
from quire.protocol.openai.body import CHAT, COMPLETIONS
from quire.protocol.openai.fields import Fields, refuse

_LONGEST_ID = 512


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One request as it stands in the file; its body is not checked yet."""

    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no request, or the second one of its custom_id."""

    number: int
    custom_id: str | None
    code: str
    message: str
    field: str | None = None
    """The field that is wrong; None if the line is no object at all."""


class LineReader:
    """Reads the lines of one file in order, and remembers their custom_ids."""

    def __init__(self, urls: tuple[str, ...], longest: int | None = None) -> None:
        """`urls` are the endpoints that a line may name, `longest` the bytes that it may have."""
        self._urls = urls
        self._longest = longest
        self._first_seen: dict[str, int] = {}

    def read(self, number: int, raw: bytes) -> BatchLine | BadLine:
        """The request in line `number`, counted from 1, or what is wrong with that line."""
        custom_id: str | None = None
        try:
            values = self._object(raw)
            custom_id = _custom_id(values)
            first = self._first_seen.setdefault(custom_id, number)
            if first != number:
                message = f"line {number} has the custom_id {custom_id!r} of line {first}; give it another"
                return BadLine(number, custom_id, "duplicate_custom_id", message, "custom_id")
            return self._line(values, custom_id)
        except InvalidRequest as error:
            return BadLine(number, custom_id, "invalid_line", f"line {number}: {error}", error.field)

    def _object(self, raw: bytes) -> dict[str, Any]:
        if self._longest is not None and len(raw) > self._longest:
            raise InvalidRequest(f"it is longer than {self._longest} bytes, the most that a line may have")
        try:
            values = msgspec.json.decode(raw)
        except (ValueError, RecursionError) as error:  # msgspec's and Unicode's errors are ValueErrors
            raise InvalidRequest(f"it is not JSON ({error})") from None
        if not isinstance(values, dict):
            raise InvalidRequest("it is not a JSON object")
        return values

    def _line(self, values: dict[str, Any], custom_id: str) -> BatchLine:
        fields = Fields(values, known=("custom_id", "method", "url", "body"))
        method, url, body = fields.get("method"), fields.get("url"), fields.get("body")
        if method != "POST":
            raise refuse("method", method, "POST")
        if url not in self._urls:
            raise refuse("url", url, " or ".join(self._urls))
        if not isinstance(body, dict):
            raise refuse("body", body, "an object")
        return BatchLine(custom_id, url, body)


def read_lines(lines: Iterable[bytes]) -> Iterator[BatchLine | BadLine]:
    """Every line of a file that may ask for chats and completions; blank lines are left out."""
    reader = LineReader((CHAT, COMPLETIONS))
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield reader.read(number, line)


def _custom_id(values: dict[str, Any]) -> str:
    custom_id = values.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _LONGEST_ID:
        raise refuse("custom_id", custom_id, f"text of 1 to {_LONGEST_ID} characters")
    return custom_id
