"""The lines of a batch's input file: checked as a whole before anything runs, then read one at a time.

Unlike `quire run-batch`, a batch of the server with a bad line fails as a whole and says where, as OpenAI's does.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from quire.protocol.batch.lines import BadLine, BatchLine, LineReader

MOST_LINES = 50_000
LONGEST_LINE = 10 << 20
"""Bytes; as much as a body over HTTP could be."""
MOST_PROBLEMS = 100


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
    total = 0
    problems: list[Problem] = []
    async for line in _read(chunks, endpoint):
        if isinstance(line, BadLine):
            problems.append(_problem(line))
            if len(problems) >= MOST_PROBLEMS:
                break
        else:
            total += 1
            if total > MOST_LINES:
                problems.append(_TOO_MANY)
                break
    if not total and not problems:
        problems.append(_EMPTY)
    return Checked(total, problems)


async def read_requests(chunks: AsyncIterator[bytes], endpoint: str) -> AsyncIterator[BatchLine]:
    """The requests of a file that `check_lines` found good, in order."""
    async for line in _read(chunks, endpoint):
        assert isinstance(line, BatchLine)
        yield line


async def _read(chunks: AsyncIterator[bytes], endpoint: str) -> AsyncIterator[BatchLine | BadLine]:
    reader = LineReader((endpoint,), LONGEST_LINE)
    async for number, raw in _numbered(chunks):
        yield reader.read(number, raw)


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


def _problem(line: BadLine) -> Problem:
    code = line.code
    if code == "invalid_line":  # OpenAI's batches tell these two apart
        code = "invalid_json_line" if line.field is None else "invalid_request"
    return Problem(code=code, message=line.message, line=line.number, param=line.field)
