"""What /openapi.json says of Anthropic's routes."""

from typing import Any

from quire.core.checks import MAX_TOKENS
from quire.core.sampling_params import MAX_STOP_LENGTH, MAX_STOP_STRINGS
from quire.protocol.anthropic.output_config import OUTPUT_FIELDS
from quire.protocol.anthropic.tools import tool_fields
from quire.protocol.anthropic.turns import LONGEST_ID, ROLES
from quire.protocol.openai.messages import LONGEST_CONTENT, MOST_MESSAGES, MOST_PARTS
from quire.protocol.openai.options import LONGEST_IDENTIFIER, LONGEST_MODEL
from quire.protocol.openai.sampling_fields import SAMPLING
from quire.protocol.openai.schema import Schema, body, either, flag, items, text, whole


def message_body() -> Schema:
    fields = _shared() | {
        "max_tokens": whole(1, MAX_TOKENS, description="Tokens of the answer at most."),
        "metadata": either(body({"user_id": text(LONGEST_IDENTIFIER)}), _NULL, description="Written to the log."),
        "service_tier": {"type": ["string", "null"]},
        "stop_sequences": items(_STOP, MAX_STOP_STRINGS),
        "stream": flag(description="Send the answer in pieces, as server-sent events."),
        **{name: SAMPLING[name] for name in ("temperature", "top_k", "top_p")},
    }
    return body(fields, required=("model", "max_tokens", "messages"))


def count_body() -> Schema:
    return body({**message_body()["properties"], "max_tokens": whole(1, MAX_TOKENS)}, required=("model", "messages"))


def message_answer() -> Schema:
    whole_number = {"type": "integer"}
    usage = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "type": {"const": "message"},
            "role": {"const": "assistant"},
            "model": {"type": "string"},
            "content": {"type": "array", "items": {"type": "object", "required": ["type"]}},
            "stop_reason": {"type": "string"},
            "stop_sequence": {"type": ["string", "null"]},
            "usage": {"type": "object", "properties": dict.fromkeys(usage, whole_number), "required": list(usage)},
        },
        "required": ["id", "type", "role", "model", "content", "stop_reason", "usage"],
    }


def count_answer() -> Schema:
    return {"type": "object", "properties": {"input_tokens": {"type": "integer"}}, "required": ["input_tokens"]}


def _content(*blocks: Schema) -> Schema:
    item = blocks[0] if len(blocks) == 1 else {"anyOf": list(blocks)}
    return {"anyOf": [_TEXT, {"type": "array", "items": item, "maxItems": MOST_PARTS}]}


def _shared() -> dict[str, Schema]:
    content = _content(_BLOCK)
    said = {
        "user": _content(_BLOCK, _RESULT),
        "assistant": _content(_BLOCK, *_THOUGHTS, _CALL),
        "system": content,
    }
    message = either(
        *(body({"role": {"const": role}, "content": said[role]}, required=("role", "content")) for role in ROLES)
    )
    return {
        "model": text(LONGEST_MODEL, description="A name from /v1/models."),
        "messages": items(message, MOST_MESSAGES, least=1),
        "system": either(*content["anyOf"], _NULL),
        **tool_fields(_CACHE_CONTROL),
        "cache_control": _CACHE_CONTROL,
        "speed": {"type": ["string", "null"]},
        **OUTPUT_FIELDS,
    }


_NULL: Schema = {"type": "null"}
_TEXT: Schema = {"type": "string", "maxLength": LONGEST_CONTENT}
_STOP: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_LENGTH}
_CACHE_CONTROL: dict[str, Any] = either(
    body({"type": {"const": "ephemeral"}}, required=("type",)),
    _NULL,
    description="Needs nothing done: every prefix is cached.",
)
_BLOCK: Schema = body(
    {
        "type": {"const": "text"},
        "text": {**_TEXT, "minLength": 1},
        "cache_control": _CACHE_CONTROL,
    },
    required=("type", "text"),
)
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_ID}
_RESULT: Schema = body(
    {
        "type": {"const": "tool_result"},
        "tool_use_id": _ID,
        "content": either(*_content(_BLOCK)["anyOf"], _NULL),
        "is_error": flag(),
        "cache_control": _CACHE_CONTROL,
    },
    required=("type", "tool_use_id"),
)
_CALL: Schema = body(
    {
        "type": {"const": "tool_use"},
        "id": _ID,
        "name": _ID,
        "input": {"type": "object"},
        "cache_control": _CACHE_CONTROL,
    },
    required=("type", "id", "name", "input"),
)
_THOUGHTS: tuple[Schema, ...] = (
    body(
        {"type": {"const": "thinking"}, "thinking": _TEXT, "signature": {"type": ["string", "null"]}},
        required=("type", "thinking"),
    ),
    body({"type": {"const": "redacted_thinking"}, "data": {"type": ["string", "null"]}}, required=("type",)),
)
