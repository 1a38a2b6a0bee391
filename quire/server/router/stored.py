"""Stored things: files, batches, responses and conversations, which one member has and the others have not."""

import re
from dataclasses import dataclass

from quire.router.prefix import Prefix

_CREATING = re.compile(r"/v1/(files|batches|conversations|conversations/[^/]+/items)")
LISTS = ("/v1/files", "/v1/batches")
_NAME = r"[A-Za-z0-9_-]{1,128}"
_ONE = re.compile(rf"/v1/(files|batches|responses|conversations)/({_NAME})(?:/[a-z_]+(?:/{_NAME})?)?")


@dataclass(frozen=True, slots=True)
class Stored:
    """One of them."""

    identity: str
    target: str
    """Where the member that has it shows it."""


def creates(path: str) -> bool:
    """Whether a POST there makes a new thing each time."""
    return _CREATING.fullmatch(path) is not None


def stored_of(path: str, prefix: Prefix) -> Stored | None:
    """What a request is about, by its path or its body; None: nothing stored."""
    found = _ONE.fullmatch(path)
    if found is not None and found[2] not in ("input_tokens", "compact"):
        return Stored(found[2], f"/v1/{found[1]}/{found[2]}")
    if prefix.conversation is not None and path == "/v1/responses":
        return _named("conversations", prefix.conversation)
    if prefix.previous is not None and path == "/v1/responses":
        return _named("responses", prefix.previous)
    if prefix.previous is not None and path == "/v1/batches":
        return _named("files", prefix.previous)
    return None


def _named(kind: str, identity: str) -> Stored | None:
    """What cannot be a name is for the member to refuse."""
    target = f"/v1/{kind}/{identity}"
    return Stored(identity, target) if _ONE.fullmatch(target) else None
