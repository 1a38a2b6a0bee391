"""New keys: 32 random bytes, shown once, and the entry for the keys file that knows them by their hash."""

import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from quire.server.gate.keys import digest_of
from quire.server.gate.keys_file import parse_keys

_PREFIX = "quire-"
"""Lets people and scanners for leaked secrets see what it is."""
_RANDOM_BYTES = 32


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that nobody has seen yet."""

    secret: str
    entry: str
    """Its lines in the keys file."""


def new_key(name: str, settings: dict[str, Any]) -> NewKey:
    """A key for `name`, whose entry has the settings that are not None."""
    secret = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    fields = {"sha256": digest_of(secret.encode()).hex()}
    fields |= {field: value for field, value in settings.items() if value is not None}
    made = NewKey(secret, yaml.safe_dump({name: fields}, sort_keys=False))
    parse_keys(made.entry, "the new key")
    return made


def append_entry(path: Path, entry: str) -> None:
    """Add an entry to a keys file, or begin one. A reader sees the old file or the new one, never half of it."""
    path = path.resolve()  # a link stays a link
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    text += ("" if text.endswith("\n") or not text else "\n") + entry
    parse_keys(text, f"nothing was written: {path}")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # its mode is 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
