"""The lines of a batch's input file: checked as a whole before anything runs, then read one at a time.

Unlike `quire run-batch`, a batch of the server with a bad line fails as a whole and says where, as OpenAI's does.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from quire.core.errors import InvalidRequest
from quire.protocol.batch.lines import BatchLine
from quire.protocol.openai.fields import Fields, refuse

MOST_LINES = 50_000
LONGEST_LINE = 10 << 20
"""Bytes; as much as a body over HTTP could be."""
MOST_PROBLEMS = 100
_LONGEST_ID = 512
_FIELDS = ("custom_id", "method", "url", "body")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why an input file cannot run, as a batch's `errors` lists it."""

    code: str
    message: str
    line: int | None = None
    """Counted from 1; None where it is about the whole file."""
    param: str | None = None


_EMPTY = Problem(code="empty_file", message="the file has no requests; give it one a line")
_TOO_MANY = Problem(
    code="too_many_requests", message=f"the file has more than {MOST_LINES} requests, the most of one batch; split it"
)


@dataclass(frozen=True, slots=True)
class Checked:
    """What reading an input file from end to end showed."""

    total: int
    problems: list[Problem]


async def check_lines(chunks: AsyncIterator[bytes], endpoint: str) -> Checked:
    """Read every line; stops early once there are more problems than anyone reads."""
    first_seen: dict[str, int] = {}
    problems: list[Problem] = []
    async for number, raw in _numbered(chunks):
        try:
            custom_id = _line(raw, endpoint).custom_id
        except InvalidRequest as error:
            code = "invalid_json_line" if error.field is None else "invalid_request"
            problems.append(Problem(code=code, message=f"line {number}: {error}", line=number, param=error.field))
        else:
            if custom_id in first_seen:
                problems.append(_twice(custom_id, number, first_seen[custom_id]))
            first_seen.setdefault(custom_id, number)
        if len(first_seen) > MOST_LINES:
            problems.append(_TOO_MANY)
        if len(problems) >= MOST_PROBLEMS or _TOO_MANY in problems[-1:]:
            break
    if not first_seen and not problems:
        problems.append(_EMPTY)
    return Checked(len(first_seen), problems)


async def read_requests(chunks: AsyncIterator[bytes], endpoint: str) -> AsyncIterator[BatchLine]:
    """The requests of a file that `check_lines` found good, in order."""
    async for _, raw in _numbered(chunks):
        yield _line(raw, endpoint)


async def _numbered(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Lines that are not blank. One that is too long comes cut off at a byte more than is allowed."""
    number, held = 1, bytearray()
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        held += first[: LONGEST_LINE + 1 - len(held)]
        for piece in others:
            if held.strip():
                yield number, bytes(held)
            number, held = number + 1, bytearray(piece[: LONGEST_LINE + 1])
    if held.strip():
        yield number, bytes(held)


def _line(raw: bytes, endpoint: str) -> BatchLine:
    values = Fields(_object(raw), known=_FIELDS)
    custom_id = values.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _LONGEST_ID:
        raise refuse("custom_id", custom_id, f"text of 1 to {_LONGEST_ID} characters")
    if values.get("method") != "POST":
        raise refuse("method", values.get("method"), "POST")
    if values.get("url") != endpoint:
        raise refuse("url", values.get("url"), f"{endpoint}, the endpoint of the batch")
    body = values.get("body")
    if not isinstance(body, dict):
        raise refuse("body", body, "an object")
    return BatchLine(custom_id, endpoint, body)


def _object(raw: bytes) -> dict[str, Any]:
    if len(raw) > LONGEST_LINE:
        raise InvalidRequest(f"it is longer than {LONGEST_LINE} bytes, the most of a line")
    try:
        values = msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:  # msgspec's and Unicode's errors are ValueErrors
        raise InvalidRequest(f"it is not JSON ({error})") from None
    if not isinstance(values, dict):
        raise InvalidRequest("it is not a JSON object")
    return values


def _twice(custom_id: str, number: int, first: int) -> Problem:
    message = f"line {number} has the custom_id {custom_id!r} of line {first}; give it another"
    return Problem(code="duplicate_custom_id", message=message, line=number, param="custom_id")
