"""What /openapi.json says of the answers of vLLM's own routes."""

from quire.protocol.openai.schema import Schema

_COUNT: Schema = {"type": "integer"}
_TEXT: Schema = {"type": "string"}
_MAYBE_TEXT: Schema = {"type": ["string", "null"]}
_USAGE: Schema = {
    "type": "object",
    "properties": dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), _COUNT),
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
}


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


GENERATED: Schema = _object(
    {
        "request_id": _TEXT,
        "model": _TEXT,
        "created": _COUNT,
        "choices": {
            "type": "array",
            "items": _object(
                {
                    "index": _COUNT,
                    "token_ids": {"type": "array", "items": _COUNT},
                    "finish_reason": _MAYBE_TEXT,
                    "logprobs": {"type": ["object", "null"]},
                }
            ),
        },
        "usage": _USAGE,
        "prompt_logprobs": {"type": ["array", "null"]},
    }
)
RENDERED: Schema = _object(
    {
        "request_id": _TEXT,
        "token_ids": {"type": "array", "items": _COUNT},
        "token_offsets": {
            "type": ["array", "null"],
            "items": {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2},
        },
        "assistant_tokens_mask": {"type": "null"},
        "sampling_params": {"type": "object"},
        "model": _TEXT,
        "stream": {"type": "boolean"},
        "stream_options": {"type": ["object", "null"]},
    }
)
GENERATIVE_SCORES: Schema = _object(
    {
        "id": _TEXT,
        "object": {"const": "list"},
        "created": _COUNT,
        "model": _TEXT,
        "data": {
            "type": "array",
            "items": _object({"index": _COUNT, "object": {"const": "score"}, "score": {"type": "number"}}),
        },
        "usage": _USAGE,
    }
)
LOAD: Schema = _object({"server_load": _COUNT})
TOKENIZER_INFO: Schema = _object(
    {
        "tokenizer_class": _TEXT,
        "model_max_length": _COUNT,
        "vocab_size": _COUNT,
        **dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token", "chat_template"), _MAYBE_TEXT),
        "added_tokens_decoder": {"type": "object"},
    }
)
