"""What /openapi.json says of good answers. Clients may meet more fields than these, never fewer of the required."""

from collections.abc import Mapping
from typing import get_args

from quire.core.status import FinishReason
from quire.protocol.openai.schema import Schema

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_TOKENS: Schema = {"type": "array", "items": _WHOLE}
_NUMBER: Schema = {"type": "number"}


def _object(fields: Mapping[str, Schema], more: Mapping[str, Schema] | None = None) -> Schema:
    """`fields` are always there, `more` only sometimes."""
    return {"type": "object", "properties": {**fields, **(more or {})}, "required": list(fields)}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_END: dict[str, Schema] = {
    "finish_reason": {
        "enum": [*get_args(FinishReason), "tool_calls", "function_call", None],
        "description": "Null while more will come.",
    },
    "stop_reason": {"type": ["string", "integer", "null"], "description": "The stop string or token that ended it."},
}
_USED: dict[str, Schema] = {"prompt_tokens": _WHOLE, "total_tokens": _WHOLE}
_USAGE: Schema = _object(
    {**_USED, "completion_tokens": _WHOLE},
    {
        "prompt_tokens_details": _object({"cached_tokens": _WHOLE}),
        "completion_tokens_details": _object({"reasoning_tokens": _WHOLE}),
    },
)
_PROMPT_LOGPROB: Schema = _object(
    {"logprob": _NUMBER, "rank": {"type": ["integer", "null"]}, "decoded_token": {"type": ["string", "null"]}}
)
_PROMPT_LOGPROBS: Schema = _list(_or_null({"type": "object", "additionalProperties": _PROMPT_LOGPROB}))
_OF_PROMPT: dict[str, Schema] = {
    "prompt_token_ids": _or_null(_TOKENS),
    "prompt_logprobs": _or_null(_PROMPT_LOGPROBS),
}
_HEAD: dict[str, Schema] = {"id": _TEXT, "created": _WHOLE, "model": _TEXT, "system_fingerprint": _TEXT}
_TIER: dict[str, Schema] = {"service_tier": _TEXT}

_TOKEN: dict[str, Schema] = {"token": _TEXT, "logprob": _NUMBER, "bytes": _list(_WHOLE)}
_CHAT_LOGPROBS: Schema = _object(
    {"content": _list(_object({**_TOKEN, "top_logprobs": _list(_object(_TOKEN))})), "refusal": {"type": "null"}}
)
_TOOL_CALL: Schema = {
    "anyOf": [
        _object(
            {
                "id": _TEXT,
                "type": {"const": "function"},
                "function": _object(
                    {"name": _TEXT, "arguments": {**_TEXT, "description": "JSON, as the model wrote it."}}
                ),
            }
        ),
        _object({"id": _TEXT, "type": {"const": "custom"}, "custom": _object({"name": _TEXT, "input": _TEXT})}),
    ]
}
SCHEMA_ERRORS: dict[str, Schema] = {
    "schema_errors": _list(_object({"index": _WHOLE, "message": _TEXT}))
    | {"description": "Choices whose finished text falls short of a JSON schema that is not strict."}
}
_MESSAGE: Schema = _object(
    {"role": {"const": "assistant"}, "content": _or_null(_TEXT), "refusal": {"type": "null"}},
    {"reasoning_content": _TEXT, "reasoning": _TEXT, "tool_calls": _list(_TOOL_CALL)},
)
CHAT_COMPLETION: Schema = _object(
    {
        **_HEAD,
        "object": {"const": "chat.completion"},
        "choices": _list(
            _object(
                {"index": _WHOLE, "message": _MESSAGE, "logprobs": _or_null(_CHAT_LOGPROBS), **_END},
                {"token_ids": _or_null(_TOKENS)},
            )
        ),
        "usage": _USAGE,
    },
    {**_TIER, **_OF_PROMPT, **SCHEMA_ERRORS},
)

_TEXT_LOGPROBS: Schema = _object(
    {
        "tokens": _list(_TEXT),
        "token_logprobs": _list({"type": ["number", "null"]}),
        "top_logprobs": _list({"type": ["object", "null"], "additionalProperties": _NUMBER}),
        "text_offset": _list(_WHOLE),
    }
)
COMPLETION: Schema = _object(
    {
        **_HEAD,
        "object": {"const": "text_completion"},
        "choices": _list(
            _object(
                {"index": _WHOLE, "text": _TEXT, "logprobs": _or_null(_TEXT_LOGPROBS), **_END},
                {"token_ids": _or_null(_TOKENS), **_OF_PROMPT},
            )
        ),
        "usage": _USAGE,
    },
    {**_TIER, **SCHEMA_ERRORS},
)

_LIST: dict[str, Schema] = {
    "id": _TEXT,
    "object": {"const": "list"},
    "created": _WHOLE,
    "model": _TEXT,
    "usage": _object(_USED),
}
_VECTOR: Schema = {"anyOf": [_list(_NUMBER), {"type": "string", "contentEncoding": "base64"}]}
EMBEDDINGS: Schema = _object(
    {**_LIST, "data": _list(_object({"object": {"const": "embedding"}, "index": _WHOLE, "embedding": _VECTOR}))}
)
SCORES: Schema = _object(
    {**_LIST, "data": _list(_object({"object": {"const": "score"}, "index": _WHOLE, "score": _NUMBER}))}
)
CLASSIFIED: Schema = _object(
    {
        **_LIST,
        "data": _list(
            _object({"index": _WHOLE, "label": _TEXT, "probs": _list(_NUMBER), "num_classes": _WHOLE}),
        ),
    }
)
POOLED: Schema = _object(
    {
        **_LIST,
        "data": _list(
            _object(
                {
                    "object": {"const": "pooling"},
                    "index": _WHOLE,
                    "data": {"anyOf": [*_VECTOR["anyOf"], _list(_list(_NUMBER))]},
                }
            )
        ),
    }
)
RERANKED: Schema = _object(
    {
        "id": _TEXT,
        "model": _TEXT,
        "results": _list(
            _object({"index": _WHOLE, "relevance_score": _NUMBER}, {"document": _object({"text": _TEXT})})
        ),
        "usage": _object(_USED),
        "meta": _object({"api_version": _object({"version": _TEXT}), "tokens": _object({"input_tokens": _WHOLE})}),
    }
)

_BYTES: Schema = _list(_list(_WHOLE))
COHERE_EMBEDDINGS: Schema = _object(
    {
        "id": _TEXT,
        "embeddings": _object(
            {}, {"float": _list(_list(_NUMBER)), "base64": _list(_TEXT), "binary": _BYTES, "ubinary": _BYTES}
        ),
        "texts": _list(_TEXT),
        "meta": _object(
            {
                "api_version": _object({"version": _TEXT}),
                "billed_units": _object({"input_tokens": _WHOLE, "image_tokens": _WHOLE}),
            }
        ),
        "response_type": {"const": "embeddings_by_type"},
    }
)

TOKENIZED: Schema = _object(
    {"tokens": {"anyOf": [_TOKENS, _list(_object({"id": _WHOLE, "piece": {"type": ["string", "array"]}}))]}},
    {
        "count": _WHOLE,
        "max_model_len": _WHOLE,
        "token_strs": _or_null(_list({"type": ["string", "null"]})),
    },
)
DETOKENIZED: Schema = _object({"prompt": _TEXT}, {"content": _TEXT})

MODEL: Schema = _object(
    {
        "id": _TEXT,
        "object": {"const": "model"},
        "created": _WHOLE,
        "owned_by": _TEXT,
        "root": _TEXT,
        "parent": {"type": ["string", "null"]},
        "max_model_len": _WHOLE,
        "input_modalities": _list(_TEXT),
        "permission": _list({"type": "object"}),
    }
)
MODELS: Schema = _object({"object": {"const": "list"}, "data": _list(MODEL)})
