"""Prompts as clients may write them: text, token ids, or a list of either."""

from typing import Any, TypeGuard

from quire.core.checks import MAX_TOKENS
from quire.protocol.openai.fields import as_whole, refuse
from quire.protocol.openai.schema import TOKEN_ID, Schema
from quire.text.tokenizer import MOST_CHARACTERS

MOST_PROMPTS = 2048
MOST_TOKENS = 1 << 20
"""Token ids in one prompt; no context is as long."""

TEXT: Schema = {"type": "string", "maxLength": MOST_CHARACTERS}
_TOKENS: Schema = {"type": "array", "items": TOKEN_ID, "minItems": 1, "maxItems": MOST_TOKENS}
PROMPTS: Schema = {
    "anyOf": [
        TEXT,
        _TOKENS,
        {"type": "array", "items": {"anyOf": [TEXT, _TOKENS]}, "minItems": 1, "maxItems": MOST_PROMPTS},
    ],
    "description": "Text, token ids, or a list of either.",
}
TEXTS: Schema = {
    "anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1, "maxItems": MOST_PROMPTS}],
    "description": "A text or a list of texts.",
}


def read_prompts(field: str, given: object) -> list[str | list[int]]:
    """Each prompt that `given` holds."""
    # a list that begins with a number is one prompt
    alone = isinstance(given, str) or (isinstance(given, list) and bool(given) and isinstance(given[0], int | float))
    several = [given] if alone else given
    if not isinstance(several, list) or not several:
        raise refuse(field, given, "text, token ids, or a list of either")
    if len(several) > MOST_PROMPTS:
        raise refuse(field, f"a list of {len(several)}", f"a list of at most {MOST_PROMPTS} prompts")
    return [_one(field, each) for each in several]


def read_texts(field: str, given: object) -> list[str]:
    """Each text that `given` holds."""
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, list) or not 0 < len(several) <= MOST_PROMPTS:
        raise refuse(field, given, f"a text or a list of 1 to {MOST_PROMPTS} texts")
    return [_text(field, each) for each in several]


def read_tokens(field: str, given: object) -> list[int]:
    """Token ids; none at all are fine."""
    if isinstance(given, list) and not _are_tokens(given):
        given = [as_whole(value) for value in given]
    if not _are_tokens(given) or len(given) > MOST_TOKENS:
        raise refuse(field, given, f"a list of at most {MOST_TOKENS} token ids, which are whole numbers from 0")
    return given


def _one(field: str, given: object) -> str | list[int]:
    if isinstance(given, str):
        return _text(field, given)
    if isinstance(given, list) and given:
        return read_tokens(field, given)
    raise refuse(field, given, "text, token ids, or a list of either")


def _text(field: str, given: object) -> str:
    if not isinstance(given, str):
        raise refuse(field, given, "text")
    if len(given) > MOST_CHARACTERS:
        raise refuse(field, f"a text of {len(given)} characters", f"at most {MOST_CHARACTERS} characters long")
    return given


def _are_tokens(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < MAX_TOKENS for value in values)
