"""Bodies of Ollama's API: chats, completions and embeddings."""

import json
from dataclasses import dataclass
from typing import Any

from quire.core.checks import MAX_LOGPROBS
from quire.core.sampling_params import SamplingParams
from quire.core.structured import StructuredOutput
from quire.protocol.ignored import Ignored
from quire.protocol.llama_cpp.closed_schema import closed
from quire.protocol.media_parts import read_part
from quire.protocol.ollama.options import read_options
from quire.protocol.openai.embedding_body import MOST_DIMENSIONS
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.free_form import check_free_form
from quire.protocol.openai.messages import MOST_MESSAGES, read_messages
from quire.protocol.openai.options import LONGEST_MODEL
from quire.protocol.openai.prompts import read_texts, read_tokens
from quire.protocol.openai.structured_fields import DEEPEST_SCHEMA, MOST_SCHEMA_VALUES
from quire.protocol.openai.tools import MOST_TOOLS, read_tools
from quire.protocol.parsers.tools import Tools
from quire.text.tokenizer import MOST_CHARACTERS

SHARED = ("model", "name", "options", "keep_alive")
"""Of every body; `name` is what `model` was called first."""
ANSWER = (*SHARED, "stream", "format", "think", "logprobs", "top_logprobs", "truncate", "shift")
CHAT_FIELDS = (*ANSWER, "messages", "tools")
GENERATE_FIELDS = (*ANSWER, "prompt", "suffix", "system", "raw", "context", "images", "template")
EMBED_FIELDS = (*SHARED, "input", "truncate", "dimensions")
EFFORTS = ("low", "medium", "high")
MOST_IMAGES = 4096
_TAG = ":latest"


@dataclass(frozen=True, slots=True)
class Asked:
    """What chats and completions have in common."""

    model: str | None
    params: SamplingParams
    stream: bool
    think: bool | str | None


@dataclass(frozen=True, slots=True)
class ChatBody:
    """A body of /api/chat; without messages it only asks for the model to be there."""

    asked: Asked
    messages: list[dict[str, Any]]
    tools: Tools


@dataclass(frozen=True, slots=True)
class GenerateBody:
    """A body of /api/generate; without a prompt it only asks for the model to be there."""

    asked: Asked
    prompt: str
    system: str | None
    suffix: str | None
    """What follows the gap that the answer fills."""
    raw: bool
    """The prompt is for the model as it stands, without the chat template."""
    context: list[int]
    """Tokens of the answers before, as they gave them."""
    images: list[dict[str, Any]]
    """Parts of a message."""


@dataclass(frozen=True, slots=True)
class EmbedBody:
    """A body of /api/embed."""

    model: str | None
    inputs: list[str]
    truncate: bool
    dimensions: int | None


def read_chat_body(values: object, ignored: Ignored | None = None) -> ChatBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given = Fields(object_of(values), known=CHAT_FIELDS, ignored=ignored or Ignored())
    messages = [
        _openai_message(each, f"messages[{place}]")
        for place, each in enumerate(given.list("messages", MOST_MESSAGES) or [])
    ]
    tools = [
        {"type": "function", **each} if isinstance(each, dict) else each
        for each in given.list("tools", MOST_TOOLS) or []
    ]
    as_openai = Fields({"messages": messages, "tools": tools}, known=("messages", "tools"), ignored=given.ignored)
    return ChatBody(_asked(given), read_messages(as_openai) if messages else [], read_tools(as_openai))


def read_generate_body(values: object, ignored: Ignored | None = None) -> GenerateBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given = Fields(
        object_of(values),
        known=GENERATE_FIELDS,
        unsupported={"template": "templates from requests are off; use raw, or start quire with --chat-template FILE"},
        ignored=ignored or Ignored(),
    )
    return GenerateBody(
        asked=_asked(given),
        prompt=given.text("prompt", longest=MOST_CHARACTERS) or "",
        system=given.text("system", longest=MOST_CHARACTERS) or None,
        suffix=given.text("suffix", longest=MOST_CHARACTERS) or None,
        raw=given.flag("raw"),
        context=read_tokens("context", given.get("context") or []),
        images=[
            read_part(given, part, f"images[{place}]")
            for place, part in enumerate(_image_parts(given.get("images"), "images"))
        ],
    )


def read_embed_body(values: object, ignored: Ignored | None = None) -> EmbedBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given = Fields(object_of(values), known=EMBED_FIELDS, ignored=ignored or Ignored())
    given.hint("keep_alive")
    texts = given.get("input")
    read_options(given)
    return EmbedBody(
        model=read_model(given),
        inputs=[] if texts in ([], "", None) else read_texts("input", texts),
        truncate=given.flag("truncate", True),
        dimensions=given.whole("dimensions", 1, MOST_DIMENSIONS),
    )


def read_model(given: Fields) -> str | None:
    """What the body calls the model."""
    return given.text("model", longest=LONGEST_MODEL) or given.text("name", longest=LONGEST_MODEL)


def untagged(name: str) -> str:
    """Ollama's clients put a tag after the name of every model, and `latest` where it has none."""
    return name.removesuffix(_TAG)


def tagged(name: str) -> str:
    """A name as Ollama's clients expect one."""
    return name if ":" in name else name + _TAG


def _asked(given: Fields) -> Asked:
    think = given.get("think")
    if not (think is None or isinstance(think, bool) or think in EFFORTS):
        raise refuse("think", think, f"true, false or one of {', '.join(EFFORTS)}")
    top = given.whole("top_logprobs", 0, MAX_LOGPROBS)
    logprobs = (top or 0) if given.flag("logprobs") else None
    for name in ("keep_alive", "truncate", "shift"):
        given.hint(name)  # the model stays loaded, and a prompt that is too long is refused whatever they say
    params = SamplingParams(**read_options(given), logprobs=logprobs, structured=_format(given.get("format")))
    return Asked(read_model(given), params, given.flag("stream", True), think)


def _format(given: object) -> StructuredOutput | None:
    if given in (None, ""):
        return None
    if given == "json":
        return StructuredOutput(json_object=True)
    if not isinstance(given, dict):
        raise refuse("format", given, '"json" or a JSON schema')
    check_free_form("format", given, most=MOST_SCHEMA_VALUES, deepest=DEEPEST_SCHEMA)
    return StructuredOutput(json=json.dumps(closed(given)))


def _openai_message(given: object, where: str) -> object:
    """A message in OpenAI's shape, which says the same with other names; arguments of calls are objects here."""
    if not isinstance(given, dict):
        return given
    message = {name: value for name, value in given.items() if name not in ("images", "tool_name", "tool_calls")}
    message["content"] = given.get("content") or ""
    images = _image_parts(given.get("images"), f"{where}.images")
    if images:
        said = message["content"]
        message["content"] = [*images, {"type": "text", "text": said}] if said else images
    if given.get("tool_name") is not None:
        message["name"] = given["tool_name"]
    calls = given.get("tool_calls")
    if isinstance(calls, list) and calls:
        message["tool_calls"] = [_openai_call(call) for call in calls]
    return message


def _openai_call(given: object) -> object:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(function, dict):
        return given
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    called = {"name": function.get("name"), "arguments": text}
    return {**({"id": given["id"]} if given.get("id") else {}), "type": "function", "function": called}


def _image_parts(given: object, where: str) -> list[dict[str, Any]]:
    """Ollama has the bytes of images in base64, without a word of what they are."""
    if given in (None, []):
        return []
    if not isinstance(given, list) or len(given) > MOST_IMAGES or not all(isinstance(each, str) for each in given):
        raise refuse(where, given, f"a list of at most {MOST_IMAGES} images in base64")
    return [{"type": "image_url", "image_url": {"url": f"data:image;base64,{each}"}} for each in given]
