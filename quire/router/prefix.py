"""The prefix of a body: what of its prompt a member may have cached, known by its text alone.

A router has no tokenizer. It names stretches of text as an engine names blocks of tokens, so that bodies that begin
alike have names that begin alike. A name is the same in every router.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

CHUNK_BYTES = 256
"""Of text that one name stands for: about as many tokens as a chunk of `serving.routing` has."""
_BYTES_A_TOKEN = 4
_MOST_CHUNKS = 4096
"""A megabyte of text; what comes behind it makes no difference."""
_HEAD_BYTES = 2048
"""Of a first message: enough to tell conversations apart, and not yet the question behind a long document."""
HEAD_TOKENS = _HEAD_BYTES // _BYTES_A_TOKEN


@dataclass(frozen=True, slots=True)
class Prefix:
    """What is known of one body."""

    model: str | None = None
    tokens: int = 0
    """About how many its prompt has."""
    names: list[int] = field(default_factory=list)
    """Of every whole chunk and all before it."""
    home: bytes = b""
    """What the same conversation has in common however long it grows; empty where there is nothing to go by."""
    home_tokens: int = 0
    """About how many tokens that is."""
    previous: str | None = None
    """The stored response, or file, that it refers to, which one member has."""
    conversation: str | None = None
    """The stored conversation that it goes on with."""


def prefix_of(body: bytes) -> Prefix:
    """Anything that is no JSON object has no prefix; whether it is a body at all is for the member to say."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Prefix(tokens=min(len(body), CHUNK_BYTES * _MOST_CHUNKS) // _BYTES_A_TOKEN)
    if not isinstance(fields, dict):
        return Prefix()
    model = fields.get("model")
    model = model if isinstance(model, str) else None
    pieces = list(_texts(fields))
    # adapters and tenants have prefixes of their own
    start = blake2b(f"{model}\0{fields.get('cache_salt')}".encode(errors="replace"), digest_size=8).digest()
    text = "\0".join(piece for piece, _ in pieces).encode(errors="replace")
    names, name = [], start
    for place in range(0, min(len(text), CHUNK_BYTES * _MOST_CHUNKS) - CHUNK_BYTES + 1, CHUNK_BYTES):
        name = blake2b(name + text[place : place + CHUNK_BYTES], digest_size=8).digest()
        names.append(int.from_bytes(name))
    head = _head(pieces)
    previous = fields.get("previous_response_id") or fields.get("input_file_id")
    conversation = fields.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    return Prefix(
        model=model,
        tokens=len(text) // _BYTES_A_TOKEN,
        names=names,
        home=blake2b(start + head, digest_size=16).digest() if head else b"",
        home_tokens=len(head) // _BYTES_A_TOKEN,
        previous=previous if isinstance(previous, str) else None,
        conversation=conversation if isinstance(conversation, str) else None,
    )


def _head(pieces: list[tuple[str, bool]]) -> bytes:
    """Everything up to the beginning of the first text that is a user's."""
    head = b""
    for piece, is_users in pieces:
        encoded = piece.encode(errors="replace")
        head += encoded[:_HEAD_BYTES] if is_users else encoded
        if is_users:
            break
    return head


def _texts(fields: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The texts of a body in the order in which a model reads them, and whether each is a user's."""
    for name in ("system", "instructions"):
        if fields.get(name):
            yield _text(fields[name]), False
    if fields.get("tools"):
        yield _text(fields["tools"]), False
    for message in _listed(fields.get("messages")):
        yield from _message(message)
    given = fields.get("input")
    if isinstance(given, str):
        yield given, True
    for item in _listed(given):
        yield from _message(item)
    for name in ("prompt", "query", "documents"):
        if fields.get(name) is not None:
            yield _text(fields[name]), True


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _message(message: Any) -> Iterator[tuple[str, bool]]:
    if not isinstance(message, dict):
        yield _text(message), True
        return
    role = message.get("role")
    yield f"{role}\1{_text(message.get('content'))}{_text(message.get('tool_calls'))}", role == "user"


def _text(value: Any) -> str:
    """A text as it stands; of anything else its JSON, in which media are as good as their text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
