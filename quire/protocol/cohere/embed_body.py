"""Bodies of Cohere's /v2/embed, of texts, and their vectors in the forms that Cohere's clients ask for."""

import base64
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from quire.core.errors import InvalidRequest
from quire.protocol.ignored import Ignored
from quire.protocol.openai.embedding_body import LONGEST_PROMPT_NAME, MOST_DIMENSIONS
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.options import IDENTIFIERS, LONGEST_MODEL, MODEL, read_labels
from quire.protocol.openai.prompts import MOST_PROMPTS, MOST_TOKENS, TEXT, read_texts
from quire.protocol.openai.schema import Schema, items, text, whole, words

INPUT_TYPES: dict[str, tuple[str, ...]] = {
    "search_query": ("search_query", "query"),
    "search_document": ("search_document", "document", "passage"),
    "classification": ("classification",),
    "clustering": ("clustering",),
}
"""Cohere's words for what texts are for, and what models call the prompts that they were trained with for it."""
_CUTS = ("END", "NONE")


def _signed(vectors: Sequence[Sequence[float]]) -> list[list[int]]:
    return [[byte - 128 for byte in row] for row in _unsigned(vectors)]


def _unsigned(vectors: Sequence[Sequence[float]]) -> list[list[int]]:
    """A bit a number, 1 where it is not negative, eight of them a byte, the first the highest."""
    return [
        list(int("".join(["1" if number >= 0 else "0" for number in row]), 2).to_bytes(len(row) // 8))
        for row in vectors
    ]


def _encoded(vectors: Sequence[Sequence[float]]) -> list[str]:
    return [base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode() for row in vectors]


FORMS: dict[str, Callable[[Sequence[Sequence[float]]], Sequence[Any]]] = {
    "float": lambda vectors: vectors,
    "base64": _encoded,
    "binary": _signed,
    "ubinary": _unsigned,
}
"""Kinds of vectors, and how each is made of numbers."""
_IN_BITS = ("binary", "ubinary")
COHERE_EMBED_FIELDS: dict[str, Schema] = {
    "texts": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": MOST_PROMPTS},
    "model": MODEL,
    "input_type": text(
        LONGEST_PROMPT_NAME,
        shortest=1,
        description="What the texts are for: Cohere's words, or the name of one of the model's own prompts.",
    ),
    "embedding_types": items({"enum": list(FORMS)}, len(FORMS), description="float unless given."),
    "output_dimension": whole(1, MOST_DIMENSIONS, description="Only as many as the model has."),
    "truncate": words(*_CUTS, description="END, unless given, cuts texts that are too long; NONE refuses them."),
    "max_tokens": whole(1, MOST_TOKENS, description="Keep so many of the first tokens of a text."),
    **IDENTIFIERS,
}
"""Every field of a body, and what may stand in it."""
_UNSUPPORTED = {
    "images": "/v1/embeddings takes images, one a request",
    "inputs": "give texts; /v1/embeddings takes images, one a request",
}


@dataclass(frozen=True, slots=True)
class CohereEmbedBody:
    """A body of /v2/embed."""

    model: str | None
    texts: list[str]
    input_type: str | None = None
    forms: tuple[str, ...] = ("float",)
    dimensions: int | None = None
    truncate: int | None = -1
    """How many tokens to keep: -1 as many as the model takes; None refuses what is longer."""
    labels: dict[str, str] = field(default_factory=dict)


def check_forms(forms: Sequence[str], size: int) -> None:
    """Raises an InvalidRequest where vectors of so many numbers cannot be had in these forms."""
    in_bits = next((form for form in forms if form in _IN_BITS), None)
    if in_bits is not None and size % 8:
        raise InvalidRequest(
            f"embedding_types has {in_bits!r}, whose bits come in eights, and the model's vectors have {size} numbers; "
            "ask for float or base64",
            field="embedding_types",
        )


def read_cohere_embed_body(values: object, ignored: Ignored | None = None) -> CohereEmbedBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(object_of(values), known=COHERE_EMBED_FIELDS, unsupported=_UNSUPPORTED, ignored=ignored or Ignored())
    texts = body.get("texts")
    if not isinstance(texts, list):
        raise refuse("texts", texts, f"a list of 1 to {MOST_PROMPTS} texts")
    forms = body.list("embedding_types", len(FORMS)) or ["float"]
    for form in forms:
        if not isinstance(form, str) or form not in FORMS:
            raise refuse("embedding_types", form, f"a list of some of {', '.join(FORMS)}")
    most, cut = body.whole("max_tokens", 1, MOST_TOKENS), body.one_of("truncate", _CUTS)
    if cut == "NONE" and most is not None:
        raise InvalidRequest("max_tokens cuts texts, and truncate is NONE; leave one of them out", field="max_tokens")
    return CohereEmbedBody(
        model=body.text("model", longest=LONGEST_MODEL),
        texts=read_texts("texts", texts),
        input_type=body.text("input_type", shortest=1, longest=LONGEST_PROMPT_NAME),
        forms=tuple(dict.fromkeys(forms)),
        dimensions=body.whole("output_dimension", 1, MOST_DIMENSIONS),
        truncate=None if cut == "NONE" else most or -1,
        labels=read_labels(body),
    )
