"""Bodies of /v1/embeddings and /v1/score as what a model runs that reads texts."""

from dataclasses import dataclass, field

from quire.core.errors import InvalidRequest
from quire.core.pooling import POOLINGS, Pooling
from quire.protocol.ignored import Ignored
from quire.protocol.media_parts import PART_SCHEMAS, MediaSource, split_media
from quire.protocol.openai.body import read_truncation
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.messages import LONGEST_CONTENT, read_messages
from quire.protocol.openai.options import IDENTIFIERS as _IDENTIFIERS
from quire.protocol.openai.options import LONGEST_MODEL, MODEL, read_labels
from quire.protocol.openai.prompts import MOST_TOKENS, PROMPTS, TEXTS, read_prompts, read_texts
from quire.protocol.openai.schema import Schema, body, either, flag, text, whole, words

FORMATS = ("float", "base64")
MOST_DIMENSIONS = 1 << 20
LONGEST_PROMPT_NAME = 128
LONGEST_INSTRUCTION = 8192

_TRUNCATE: Schema = either(
    {"const": -1},
    whole(1, MOST_TOKENS),
    description="Keep only so many of the first tokens of a text; -1: as many as the model takes.",
)
SHARED: dict[str, Schema] = {
    "model": MODEL,
    **_IDENTIFIERS,
    "truncate_prompt_tokens": _TRUNCATE,
    "add_special_tokens": flag(),
}
"""Fields of every body that is read rather than gone on with."""
ACTIVATION: dict[str, Schema] = {
    "use_activation": flag(description="False leaves a classifier's numbers as they are. Only for classifiers.")
}
INSTRUCTION: dict[str, Schema] = {
    "instruction": text(
        LONGEST_INSTRUCTION,
        shortest=1,
        description="What a document is to do for a query. Only for Qwen3-Reranker in its own prompt.",
    )
}
VECTOR_FIELDS: dict[str, Schema] = {
    "encoding_format": words(*FORMATS, description="base64 holds float32 numbers, lowest byte first."),
    "dimensions": whole(1, MOST_DIMENSIONS, description="Only as many as the model has."),
    "normalize": flag(description="Vectors of length 1, unless false."),
    "pooling": words(*POOLINGS, description="Left out: what the model was made for."),
    "prompt_name": text(
        LONGEST_PROMPT_NAME,
        shortest=1,
        description="One of the prompts that the model was trained with, put before every text.",
    ),
}
"""What vectors are to be like."""
_SAID: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_CONTENT}
_PARTS: list[Schema] = [body({"type": {"const": "text"}, "text": _SAID}, required=("type", "text")), *PART_SCHEMAS]
_CONTENT: Schema = {"anyOf": [_SAID, {"type": "array", "items": {"anyOf": _PARTS}, "minItems": 1, "maxItems": 1}]}
EMBEDDING_FIELDS: dict[str, Schema] = {
    "input": PROMPTS,
    "messages": {
        "type": "array",
        "items": body({"role": {"const": "user"}, "content": _CONTENT}, required=("role", "content")),
        "minItems": 1,
        "maxItems": 1,
        "description": "A text or an image as one message, in place of input.",
    },
    **SHARED,
    **VECTOR_FIELDS,
}
"""Every field of an embedding body, and what may stand in it."""
SCORE_FIELDS: dict[str, Schema] = {
    "text_1": TEXTS,
    "text_2": TEXTS,
    "queries": {**TEXTS, "description": "Another name of text_1."},
    "documents": {**TEXTS, "description": "Another name of text_2."},
    **SHARED,
    **ACTIVATION,
    **INSTRUCTION,
}
"""Every field of a score body, and what may stand in it."""


UNSUPPORTED_OF_TEXTS = {
    "messages": "texts are read as they are; give them as input",
    "embed_dtype": "numbers are float32; leave it out",
    "endianness": "base64 holds the lowest byte first; leave it out",
}
"""Fields that would change what is read, or how it is told."""


@dataclass(frozen=True, slots=True)
class EmbeddingBody:
    """A body of /v1/embeddings."""

    model: str | None
    inputs: list[str | list[int]]
    """Empty where an image is given."""
    base64: bool = False
    dimensions: int | None = None
    normalize: bool = True
    pooling: Pooling | None = None
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    """-1: to what the model takes."""
    prompt_name: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    image: MediaSource | None = None


@dataclass(frozen=True, slots=True)
class ScoreBody:
    """A body of /v1/score: texts of equal number to compare pair by pair."""

    model: str | None
    first: list[str]
    """One text, or as many as `second`."""
    second: list[str]
    names: tuple[str, str] = ("text_1", "text_2")
    """What the body calls the two."""
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    use_activation: bool | None = None
    instruction: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


def read_embedding_body(values: object, ignored: Ignored | None = None) -> EmbeddingBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(
        object_of(values),
        known=EMBEDDING_FIELDS,
        unsupported={name: why for name, why in UNSUPPORTED_OF_TEXTS.items() if name != "messages"},
        ignored=ignored or Ignored(),
    )
    body.one_of("pooling", POOLINGS)
    inputs, image = _read_inputs(body)
    return EmbeddingBody(
        model=body.text("model", longest=LONGEST_MODEL),
        inputs=inputs,
        image=image,
        base64=body.one_of("encoding_format", FORMATS) == "base64",
        dimensions=body.whole("dimensions", 1, MOST_DIMENSIONS),
        normalize=body.flag("normalize", True),
        pooling=body.get("pooling"),
        add_special_tokens=body.flag("add_special_tokens", True),
        truncate_prompt_tokens=read_truncation(body),
        prompt_name=body.text("prompt_name", shortest=1, longest=LONGEST_PROMPT_NAME),
        labels=read_labels(body),
    )


def _read_inputs(body: Fields) -> tuple[list[str | list[int]], MediaSource | None]:
    """Texts, or one text or image in vLLM's form of a conversation."""
    if body.get("messages") is None:
        return read_prompts("input", body.get("input")), None
    if body.get("input") is not None:
        raise InvalidRequest("input and messages both say what to embed; leave one of them out", field="input")
    messages = read_messages(body)
    _, sources = split_media(messages)
    said = [part.get("text") for part in messages[0]["content"]] if sources else [messages[0]["content"]]
    texts = [text for text in said if text]
    if len(messages) > 1 or len(sources) + len(texts) != 1:
        raise refuse(
            "messages",
            f"{len(messages)} messages of {len(texts)} texts and {len(sources)} media",
            "one message with one text or one image, for each has a vector of its own",
        )
    return ([], sources[0]) if sources else ([texts[0]], None)


def read_score_body(values: object, ignored: Ignored | None = None) -> ScoreBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(object_of(values), known=SCORE_FIELDS, ignored=ignored or Ignored())
    left, first = _texts(body, "text_1", "queries")
    right, second = _texts(body, "text_2", "documents")
    if len(first) not in {1, len(second)}:
        raise refuse(left, f"a list of {len(first)}", f"one text or as many as the other side, {len(second)}")
    return ScoreBody(
        model=body.text("model", longest=LONGEST_MODEL),
        first=first,
        second=second,
        names=(left, right),
        add_special_tokens=body.flag("add_special_tokens", True),
        truncate_prompt_tokens=read_truncation(body),
        use_activation=read_flag(body, "use_activation"),
        instruction=body.text("instruction", longest=LONGEST_INSTRUCTION, shortest=1),
        labels=read_labels(body),
    )


def read_flag(body: Fields, name: str) -> bool | None:
    """None where it was not given."""
    return body.flag(name) if name in body else None


def _texts(body: Fields, name: str, other: str) -> tuple[str, list[str]]:
    if name in body and other in body:
        raise InvalidRequest(f"{name} and {other} are both given, and they mean the same; leave one out", field=other)
    given = other if other in body else name
    return given, read_texts(given, body.get(given))
