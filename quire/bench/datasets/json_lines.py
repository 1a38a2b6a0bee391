"""Requests as JSON lines: `prompt` (text or token ids) or `messages`, and `output_len` where a length is fixed."""

from pathlib import Path
from typing import Any

import msgspec

from quire.bench.planned import PlannedRequest
from quire.core.errors import ConfigError


class _Line(msgspec.Struct):
    prompt: str | list[int] | None = None
    messages: list[dict[str, Any]] | None = None
    output_len: int | None = None
    output_tokens: int | None = None
    max_tokens: int | None = None
    arrival_time: float | None = None
    """Seconds."""


def json_line_requests(path: Path, output_len: int | None, number: int | None) -> list[PlannedRequest]:
    """In the file's order; `output_len` wins over what a line says."""
    decoder = msgspec.json.Decoder(_Line)
    found: list[PlannedRequest] = []
    try:
        with path.expanduser().open("rb") as lines:
            for place, line in enumerate(lines, start=1):
                if len(found) == number:
                    break
                if line.strip():
                    found.append(_request(len(found), line, decoder, output_len, f"{path}, line {place}"))
    except OSError as error:
        raise ConfigError(f"the dataset {path} cannot be read: {error.strerror or error}.") from error
    if not found:
        raise ConfigError(f"the dataset {path} holds no request.")
    return found


def _request(
    number: int, line: bytes, decoder: "msgspec.json.Decoder[_Line]", output_len: int | None, where: str
) -> PlannedRequest:
    try:
        told = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {error}.") from error
    if (told.prompt is None) == (told.messages is None):
        raise ConfigError(f"{where}: a line has either prompt (text or token ids) or messages.")
    lengths = (output_len, told.output_len, told.output_tokens, told.max_tokens)
    output = next((length for length in lengths if length is not None), None)
    if output is not None and output < 1:
        raise ConfigError(f"{where}: an answer of {output} tokens; it must be 1 or more.")
    return PlannedRequest(
        number,
        ids=tuple(told.prompt) if isinstance(told.prompt, list) else None,
        text=told.prompt if isinstance(told.prompt, str) else None,
        messages=told.messages,
        output_tokens=output,
        arrival=told.arrival_time,
    )
