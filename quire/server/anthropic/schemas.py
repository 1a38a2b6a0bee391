"""What /openapi.json says of Anthropic's routes."""

from typing import Any

from quire.core.sampling_params import MAX_STOP_LENGTH, MAX_STOP_STRINGS, MAX_TOKENS
from quire.engine.openai.messages import LONGEST_CONTENT, MOST_MESSAGES, MOST_PARTS
from quire.engine.openai.options import LONGEST_IDENTIFIER, LONGEST_MODEL
from quire.engine.openai.sampling_fields import SAMPLING
from quire.engine.openai.schema import Schema, body, either, flag, items, only, text, whole, words
from quire.server.anthropic.body import ROLES


def message_body() -> Schema:
    fields = _shared() | {
        "max_tokens": whole(1, MAX_TOKENS, description="Tokens of the answer at most."),
        "metadata": either(body({"user_id": text(LONGEST_IDENTIFIER)}), _NULL, description="Written to the log."),
        "service_tier": words("auto", "standard_only"),
        "stop_sequences": items(_STOP, MAX_STOP_STRINGS),
        "stream": flag(description="Send the answer in pieces, as server-sent events."),
        **{name: SAMPLING[name] for name in ("temperature", "top_k", "top_p")},
    }
    return body(fields, required=("model", "max_tokens", "messages"))


def count_body() -> Schema:
    return body(_shared(), required=("model", "messages"))


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
            "content": {"type": "array", "items": body({"type": {"const": "text"}, "text": {"type": "string"}})},
            "stop_reason": {"type": "string"},
            "stop_sequence": {"type": ["string", "null"]},
            "usage": {"type": "object", "properties": dict.fromkeys(usage, whole_number), "required": list(usage)},
        },
        "required": ["id", "type", "role", "model", "content", "stop_reason", "usage"],
    }


def count_answer() -> Schema:
    return {"type": "object", "properties": {"input_tokens": {"type": "integer"}}, "required": ["input_tokens"]}


def _shared() -> dict[str, Schema]:
    content = {"anyOf": [_TEXT, {"type": "array", "items": _BLOCK, "maxItems": MOST_PARTS}]}
    message = body({"role": {"enum": list(ROLES)}, "content": content}, required=("role", "content"))
    return {
        "model": text(LONGEST_MODEL, description="A name from /v1/models."),
        "messages": items(message, MOST_MESSAGES, least=1),
        "system": either(*content["anyOf"], _NULL),
        "thinking": only({"type": "disabled"}),
        "tools": only([]),
        "tool_choice": only({"type": "none"}),
        "cache_control": _CACHE_CONTROL,
        "speed": only("standard"),
    }


_NULL: Schema = {"type": "null"}
_TEXT: Schema = {"type": "string", "maxLength": LONGEST_CONTENT}
_STOP: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_LENGTH}
_CACHE_CONTROL: dict[str, Any] = either(
    body({"type": {"const": "ephemeral"}, "ttl": words("5m", "1h")}, required=("type",)),
    _NULL,
    description="Needs nothing done: every prefix is cached.",
)
_BLOCK: Schema = body(
    {
        "type": {"const": "text"},
        "text": {**_TEXT, "minLength": 1},
        "cache_control": _CACHE_CONTROL,
        "citations": only([]),
    },
    required=("type", "text"),
)
