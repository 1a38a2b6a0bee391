"""What /openapi.json says of the Responses API."""

from quire.core.checks import MAX_LOGPROBS, MAX_TOKENS
from quire.protocol.openai.messages import LONGEST_CONTENT, MOST_MESSAGES, MOST_PARTS
from quire.protocol.openai.options import IDENTIFIERS, LONGEST_IDENTIFIER, MODEL, OPTIONS
from quire.protocol.openai.paging import page_schema
from quire.protocol.openai.sampling_fields import LOGIT_BIAS, RETENTION, RETENTION_FIELD, SAMPLING
from quire.protocol.openai.schema import Schema, body, either, flag, items, text, whole, words
from quire.protocol.responses.body import INCLUDED, LONGEST_ID, MOST_INCLUDED, SAMPLING_FIELDS
from quire.protocol.responses.call_items import CALL_ITEMS, LONGEST_ITEM_ID
from quire.protocol.responses.items import REFERENCE, ROLES
from quire.protocol.responses.query import MOST_ITEMS
from quire.protocol.responses.text_format import TEXT
from quire.protocol.responses.tools import TOOL_FIELDS
from quire.protocol.schemas.answers import SCHEMA_ERRORS
from quire.text.tokenizer import MOST_CHARACTERS

_NULL: Schema = {"type": "null"}
_TEXT: Schema = {"type": "string", "maxLength": LONGEST_CONTENT}
_INPUT_PART: Schema = body({"type": {"const": "input_text"}, "text": _TEXT}, required=("type", "text"))
_OUTPUT_PART: Schema = body({"type": {"const": "output_text"}, "text": _TEXT}, required=("type", "text"))


def _item() -> Schema:
    parts = {"type": "array", "items": {"anyOf": [_INPUT_PART, _OUTPUT_PART]}, "minItems": 1, "maxItems": MOST_PARTS}
    message = body(
        {
            "type": words("message"),
            "id": text(LONGEST_ITEM_ID),
            "role": {"enum": list(ROLES)},
            "content": {"anyOf": [_TEXT, parts], "description": "output_text only of the assistant."},
            "status": words("in_progress", "completed", "incomplete"),
        },
        required=("role", "content"),
    )
    reference = body({"type": {"const": REFERENCE}, "id": {"type": "string"}}, required=("type", "id"))
    return either(message, *CALL_ITEMS, reference)


ITEM = _item()


def create_body() -> Schema:
    fields: dict[str, Schema] = {
        "input": {"anyOf": [_TEXT, {"type": "array", "items": ITEM, "minItems": 1, "maxItems": MOST_MESSAGES}]},
        "model": MODEL,
        "instructions": text(MOST_CHARACTERS, description="A system message for this response alone."),
        "previous_response_id": text(LONGEST_ID, description="The stored response to go on with."),
        "conversation": {
            "anyOf": [text(LONGEST_ID), body({"id": text(LONGEST_ID)}, required=("id",))],
            "description": "The stored conversation to go on with, which input and answer become part of.",
        },
        "store": flag(description="Keep the response, so that it can be read and gone on with; true if left out."),
        "stream": flag(description="Send the answer in pieces, as server-sent events."),
        "stream_options": either(body({"include_obfuscation": flag()}), _NULL, description="Only with stream."),
        "max_output_tokens": whole(1, MAX_TOKENS, description="Left out: as many as the context holds."),
        "top_logprobs": whole(0, MAX_LOGPROBS),
        "include": items({"type": "string"}, MOST_INCLUDED, description=f"Of use: {' and '.join(INCLUDED)}."),
        "truncation": words("auto", "disabled", description="auto drops the oldest messages where all do not fit."),
        "text": TEXT,
        "background": flag(
            description="Answer at once and make the response meanwhile; it is read, followed or cancelled by its id."
        ),
        **TOOL_FIELDS,
        "service_tier": OPTIONS["service_tier"],
        "prompt_cache_key": text(LONGEST_IDENTIFIER, description="Needs nothing done: requests go to their prefix."),
        RETENTION: RETENTION_FIELD,
        **IDENTIFIERS,
        **{name: SAMPLING[name] for name in SAMPLING_FIELDS},
        "logit_bias": LOGIT_BIAS,
    }
    return body(fields, required=("input",))


STATUSES = ("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")
RESPONSE_ANSWER: Schema = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": list(STATUSES)},
        "model": {"type": "string"},
        "output": {"type": "array", "items": {"type": "object"}},
        "usage": {"type": ["object", "null"]},
        **SCHEMA_ERRORS,
    },
    "required": ["id", "object", "created_at", "status", "model", "output"],
}
DELETED_ANSWER: Schema = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "object": {"const": "response"}, "deleted": {"const": True}},
    "required": ["id", "object", "deleted"],
}
COUNT_ANSWER: Schema = {
    "type": "object",
    "properties": {"object": {"const": "response.input_tokens"}, "input_tokens": {"type": "integer"}},
    "required": ["object", "input_tokens"],
}
ITEMS_ANSWER: Schema = page_schema({"type": "object"})
RETRIEVE_QUERY: dict[str, Schema] = {
    "include": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_INCLUDED},
    "stream": {"type": "boolean", "description": "Only of one that runs in the background and was begun with stream."},
    "starting_after": {"type": "integer", "minimum": 0, "description": "With stream: the last event that is known."},
}
ITEMS_QUERY: dict[str, Schema] = {"include": RETRIEVE_QUERY["include"]}
PAGE_QUERY: dict[str, Schema] = {
    "after": {"type": "string", "maxLength": LONGEST_ITEM_ID},
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ITEMS},
    "order": {"enum": ["asc", "desc"]},
    "include": RETRIEVE_QUERY["include"],
}
