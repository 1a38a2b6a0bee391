"""What /openapi.json says of Ollama's routes."""

from quire.core.checks import MAX_LOGPROBS
from quire.protocol.media_parts import LONGEST_URL
from quire.protocol.ollama.body import EFFORTS, MOST_IMAGES
from quire.protocol.ollama.options import OPTIONS
from quire.protocol.openai.embedding_body import MOST_DIMENSIONS
from quire.protocol.openai.messages import LONGEST_CONTENT, MOST_MESSAGES
from quire.protocol.openai.options import LONGEST_MODEL
from quire.protocol.openai.prompts import MOST_TOKENS, TEXT, TEXTS
from quire.protocol.openai.schema import TOKEN_ID, Schema, body, either, flag, free_object, items, text, whole
from quire.protocol.openai.tools import MOST_TOOLS

_NULL: Schema = {"type": "null"}
_KEEP: Schema = {"type": ["string", "number", "null"], "description": "The model stays loaded while the server runs."}
_SHARED: dict[str, Schema] = {
    "model": text(LONGEST_MODEL, description="A name from /api/tags."),
    "name": text(LONGEST_MODEL, description="The older name of model."),
    "options": either(body(OPTIONS), _NULL),
    "keep_alive": _KEEP,
}
_ANSWER: dict[str, Schema] = {
    **_SHARED,
    "stream": flag(description="Lines of JSON, unless false."),
    "format": either({"enum": ["json", "", None]}, free_object(10_000), description="json, or a JSON schema."),
    "think": {"enum": [True, False, *EFFORTS, None]},
    "logprobs": flag(),
    "top_logprobs": whole(0, MAX_LOGPROBS),
    "truncate": flag(description="A prompt that is too long is refused either way."),
    "shift": flag(description="The context is never shifted: an answer ends where it is full."),
}
_IMAGES: Schema = either(items(text(LONGEST_URL), MOST_IMAGES), _NULL, description="In base64.")
_MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "user", "assistant", "tool"]},
        "content": {"type": ["string", "null"], "maxLength": LONGEST_CONTENT},
        "images": _IMAGES,
    },
    "required": ["role"],
}
CHAT_BODY: Schema = body(
    {
        **_ANSWER,
        "messages": items(_MESSAGE, MOST_MESSAGES),
        "tools": items({"type": "object"}, MOST_TOOLS, description="In OpenAI's shape."),
    }
)
GENERATE_BODY: Schema = body(
    {
        **_ANSWER,
        "prompt": {**TEXT, "type": ["string", "null"]},
        "suffix": {**TEXT, "type": ["string", "null"], "description": "For models that fill gaps."},
        "system": {**TEXT, "type": ["string", "null"]},
        "raw": flag(description="The prompt is for the model as it stands."),
        "context": items(TOKEN_ID, MOST_TOKENS, description="What an answer gave before."),
        "images": _IMAGES,
        "template": {"enum": ["", None]},
    }
)
EMBED_BODY: Schema = body(
    {**_SHARED, "input": either(TEXTS, _NULL), "truncate": flag(), "dimensions": whole(1, MOST_DIMENSIONS)},
    description="Without a text it asks for the model to be there.",
)
EMBEDDINGS_BODY: Schema = body({**_SHARED, "prompt": {**TEXT, "type": ["string", "null"]}})
SHOW_BODY: Schema = body({"model": _SHARED["model"], "name": _SHARED["name"], "verbose": flag()})

_STRING: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}
_COUNTS = (
    *("total_duration", "load_duration", "prompt_eval_count"),
    *("prompt_eval_duration", "eval_count", "eval_duration"),
)
_HEAD: dict[str, Schema] = {"model": _STRING, "created_at": _STRING, "done": {"type": "boolean"}}


def _object(required: dict[str, Schema], more: dict[str, Schema] | None = None) -> Schema:
    return {"type": "object", "properties": {**required, **(more or {})}, "required": list(required)}


_END: dict[str, Schema] = {"done_reason": {"type": ["string", "null"]}, **dict.fromkeys(_COUNTS, _COUNT)}
CHAT_ANSWER: Schema = _object({**_HEAD, "message": {"type": "object"}}, _END)
GENERATE_ANSWER: Schema = _object({**_HEAD, "response": _STRING}, _END)
EMBED_ANSWER: Schema = _object({"model": _STRING, "embeddings": {"type": "array"}, "prompt_eval_count": _COUNT})
EMBEDDINGS_ANSWER: Schema = _object({"embedding": {"type": "array", "items": {"type": "number"}}})
MODELS_ANSWER: Schema = _object({"models": {"type": "array", "items": {"type": "object"}}})
SHOW_ANSWER: Schema = _object(
    {"details": {"type": "object"}, "model_info": {"type": "object"}, "capabilities": {"type": "array"}}
)
VERSION_ANSWER: Schema = _object({"version": _STRING})
