"""Texts that a model is calibrated and judged by: those that quire ships, in its own words, or a file of the user's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quire.core.errors import ConfigError
from quire.text.tokenizer import Tokenizer

_FOLDER = Path(__file__).with_name("texts")
_LENGTH = 512
"""Tokens of a piece: what comes first in a text has little before it, so that pieces should not be short."""
_FEWEST = 2
"""Tokens that can be judged: the second by the first."""
_MOST_PIECES = 256
"""Of a file of the user's."""
_FIELDS = ("text", "content", "prompt")


def calibration_pieces(tokenizer: Tokenizer, file: Path | None, most: int) -> list[list[int]]:
    """Token ids of the calibration text, in pieces of at most `most` tokens."""
    texts = [_shipped("calibration")] if file is None else _read(file)
    found = _pieces(tokenizer, texts, most)
    if not found:
        raise ConfigError(f"--calibration {file} holds fewer than {_FEWEST} tokens of text; give a longer one.")
    return found


def calibration_bytes(file: Path) -> bytes:
    """What a file of the user's holds."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"--calibration {file} cannot be read: {error.strerror}; give a text or a .jsonl file."
        ) from None


def held_out_pieces(tokenizer: Tokenizer, most: int) -> list[list[int]]:
    """Token ids of a text that no calibration reads."""
    return _pieces(tokenizer, [_shipped("held_out")], most)


def held_out_sentences() -> list[str]:
    """Its paragraphs."""
    return _shipped("held_out").split("\n\n")


def _pieces(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[list[int]]:
    """Each begins with the token that a text begins with, where the tokenizer has one."""
    begin = tokenizer.encode("")[:1]
    length = min(_LENGTH, most) - len(begin)
    found: list[list[int]] = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        found += [begin + ids[start : start + length] for start in range(0, len(ids), length)]
    return [piece for piece in found if len(piece) >= _FEWEST][:_MOST_PIECES]


def _shipped(name: str) -> str:
    return (_FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def _read(file: Path) -> list[str]:
    """A text, or with .jsonl one text a line under `text`, `content` or `prompt`, or a conversation's `messages`."""
    try:
        text = calibration_bytes(file).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"--calibration {file} is no text: {error}; give a text or a .jsonl file.") from None
    if file.suffix != ".jsonl":
        return [text]
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return [_line(line, f"{file}:{number}") for number, line in lines]


def _line(line: str, place: str) -> str:
    try:
        value: Any = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"--calibration {place} is no JSON ({error}); give one object a line.") from None
    if isinstance(value, dict):
        messages = value.get("messages")
        if isinstance(messages, list) and all(isinstance(each, dict) for each in messages):
            return "\n".join(str(each.get("content") or "") for each in messages)
        texts = [value[field] for field in _FIELDS if isinstance(value.get(field), str)]
        if texts:
            return str(texts[0])
    raise ConfigError(f"--calibration {place} has none of {', '.join(_FIELDS)} and messages; give one of them.")
