"""The input of a batch: one request a line, in OpenAI's format. A bad line is an item of its own, never an end."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from quire.core.errors import InvalidRequest
from quire.protocol.openai.body import CHAT, COMPLETIONS
from quire.protocol.openai.fields import Fields, refuse

_URLS = (CHAT, COMPLETIONS)
_LONGEST_ID = 512


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One request as it stands in the file; its body is not checked yet."""

    custom_id: str
    url: str
    body: object


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no request, or the second one of its custom_id."""

    number: int
    custom_id: str | None
    code: str
    message: str


def read_lines(lines: Iterable[bytes]) -> Iterator[BatchLine | BadLine]:
    """Every line that is not blank, in order. Numbers count from 1."""
    first_seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        custom_id: str | None = None
        try:
            values = _object(line)
            custom_id = _custom_id(values)
            if custom_id in first_seen:
                message = (
                    f"line {number} has the custom_id {custom_id!r} of line {first_seen[custom_id]}; give it another"
                )
                yield BadLine(number, custom_id, "duplicate_custom_id", message)
                continue
            first_seen[custom_id] = number
            yield _line(values, custom_id)
        except InvalidRequest as error:
            yield BadLine(number, custom_id, "invalid_line", f"line {number}: {error}")


def _object(line: bytes) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"it is not JSON ({error})") from None
    if not isinstance(values, dict):
        raise InvalidRequest("it is not a JSON object")
    return values


def _custom_id(values: dict[str, Any]) -> str:
    custom_id = values.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _LONGEST_ID:
        raise refuse("custom_id", custom_id, f"text of 1 to {_LONGEST_ID} characters")
    return custom_id


def _line(values: dict[str, Any], custom_id: str) -> BatchLine:
    fields = Fields(values, known=("custom_id", "method", "url", "body"))
    method, url = fields.get("method"), fields.get("url")
    if method != "POST":
        raise refuse("method", method, "POST")
    if url not in _URLS:
        raise refuse("url", url, " or ".join(_URLS))
    return BatchLine(custom_id, url, fields.get("body"))
