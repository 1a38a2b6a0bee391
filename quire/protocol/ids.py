"""The ids of answers, and of what clients store."""

import re
import secrets

_ID = re.compile(r"[A-Za-z]{1,16}[-_][A-Za-z0-9]{16,64}")


def new_id(prefix: str) -> str:
    """An id that cannot be guessed; `prefix` is what OpenAI's ids begin with, such as resp_ or file-."""
    return prefix + secrets.token_hex(24)


def is_id(text: str) -> bool:
    """Whether a client's text could be an id at all."""
    return _ID.fullmatch(text) is not None
