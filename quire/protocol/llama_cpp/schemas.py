"""What /openapi.json says of the answers of llama.cpp's routes."""

from quire.protocol.openai.schema import Schema

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


COMPLETION_ANSWER: Schema = _object(
    {
        "index": _COUNT,
        "content": _TEXT,
        "tokens": {"type": "array", "items": _COUNT},
        "stop": {"type": "boolean"},
        "model": _TEXT,
        "tokens_predicted": _COUNT,
        "tokens_evaluated": _COUNT,
        "generation_settings": {"type": "object"},
        "prompt": _TEXT,
        "truncated": {"type": "boolean"},
        "stop_type": {"enum": ["eos", "limit", "word", "none"]},
        "stopping_word": _TEXT,
        "tokens_cached": _COUNT,
        "timings": {"type": "object"},
    }
)
PROPS_ANSWER: Schema = _object(
    {
        "default_generation_settings": {"type": "object"},
        "total_slots": _COUNT,
        "model_path": _TEXT,
        "chat_template": _TEXT,
        "modalities": {"type": "object"},
        "build_info": _TEXT,
    }
)
