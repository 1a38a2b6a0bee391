"""Bodies of /v1/rerank, /v2/rerank and /rerank, as clients of Cohere, Jina and vLLM write them."""

from dataclasses import dataclass, field

from quire.protocol.ignored import Ignored
from quire.protocol.openai.body import read_truncation
from quire.protocol.openai.embedding_body import ACTIVATION, INSTRUCTION, LONGEST_INSTRUCTION, SHARED, read_flag
from quire.protocol.openai.fields import Fields, object_of, refuse
from quire.protocol.openai.options import LONGEST_MODEL, read_labels
from quire.protocol.openai.prompts import MOST_PROMPTS, MOST_TOKENS, TEXT, read_texts
from quire.protocol.openai.schema import Schema, body, flag, whole

MOST_DOCUMENTS = MOST_PROMPTS
_DOCUMENT: dict[str, Schema] = {"text": TEXT}
RERANK_FIELDS: dict[str, Schema] = {
    "query": TEXT,
    "documents": {
        "type": "array",
        "items": {"anyOf": [TEXT, body(_DOCUMENT, required=("text",))]},
        "minItems": 1,
        "maxItems": MOST_DOCUMENTS,
        "description": "Texts, or objects with a text. One that is too long for the model is cut at its end.",
    },
    "top_n": whole(0, MOST_TOKENS, description="How many of the best to give; 0 or left out: all."),
    "return_documents": flag(description="Give the text of each document too, unless false."),
    "max_tokens_per_doc": whole(0, MOST_TOKENS, description="Keep so many tokens of a document; 0: all that fit."),
    **SHARED,
    **ACTIVATION,
    **INSTRUCTION,
}
"""Every field of a rerank body, and what may stand in it."""
_UNSUPPORTED = {
    "rank_fields": "documents are ranked by their text; write the fields into it",
    "max_chunks_per_doc": "a document is read as one; cut it with max_tokens_per_doc",
}


@dataclass(frozen=True, slots=True)
class RerankBody:
    """A query, and documents to put in the order of how well they answer it."""

    model: str | None
    query: str
    documents: list[str]
    top_n: int | None = None
    return_documents: bool = True
    max_tokens_per_doc: int | None = None
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    use_activation: bool | None = None
    instruction: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


def read_rerank_body(values: object, ignored: Ignored | None = None) -> RerankBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    given = Fields(object_of(values), known=RERANK_FIELDS, unsupported=_UNSUPPORTED, ignored=ignored or Ignored())
    query = given.get("query")
    if not isinstance(query, str):
        raise refuse("query", query, "text")
    return RerankBody(
        model=given.text("model", longest=LONGEST_MODEL),
        query=read_texts("query", query)[0],
        documents=_documents(given),
        top_n=given.whole("top_n", 0, MOST_TOKENS) or None,
        return_documents=given.flag("return_documents", True),
        max_tokens_per_doc=given.whole("max_tokens_per_doc", 0, MOST_TOKENS) or None,
        add_special_tokens=given.flag("add_special_tokens", True),
        truncate_prompt_tokens=read_truncation(given),
        use_activation=read_flag(given, "use_activation"),
        instruction=given.text("instruction", longest=LONGEST_INSTRUCTION, shortest=1),
        labels=read_labels(given),
    )


def _documents(given: Fields) -> list[str]:
    documents = given.list("documents", MOST_DOCUMENTS)
    if not documents:
        raise refuse("documents", documents, f"a list of 1 to {MOST_DOCUMENTS} texts, or of objects with a text")
    return read_texts("documents", [_text(each) for each in documents])


def _text(document: object) -> object:
    if not isinstance(document, dict):
        return document
    return Fields(document, known=_DOCUMENT, where="documents[].").get("text")  # more of it would be ranked by
