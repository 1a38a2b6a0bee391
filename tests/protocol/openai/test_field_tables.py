"""The tables behind /openapi.json say what the readers do: all they allow is read, and what they forbid is refused."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from quire.core.checks import MAX_TOKENS
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.protocol.cohere.embed_body import COHERE_EMBED_FIELDS, read_cohere_embed_body
from quire.protocol.cohere.rerank_body import RERANK_FIELDS, read_rerank_body
from quire.protocol.ignored import Ignored
from quire.protocol.openai.body import CHAT_FIELDS, COMPLETION_FIELDS, read_chat_body, read_completion_body
from quire.protocol.openai.embedding_body import (
    EMBEDDING_FIELDS,
    SCORE_FIELDS,
    read_embedding_body,
    read_score_body,
)
from quire.protocol.openai.pooling_body import (
    CLASSIFY_FIELDS,
    POOLING_FIELDS,
    read_classify_body,
    read_pooling_body,
)
from quire.protocol.openai.schema import Schema
from quire.protocol.openai.tokenize_body import (
    DETOKENIZE_FIELDS,
    TOKENIZE_CHAT_FIELDS,
    TOKENIZE_TEXT_FIELDS,
    read_detokenize_body,
    read_tokenize_body,
)
from tests.protocol.openai.samples import bad, good

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "request-1"}}
"""Named as the samples name things."""


@dataclass
class Api:
    """How one kind of body is read, and what a field needs beside it to make sense."""

    fields: dict[str, Schema]
    read: Callable[..., object]
    least: dict[str, Any]
    company: dict[str, dict[str, Any]] = field(default_factory=dict)

    def body(self, name: str, value: object) -> dict[str, Any]:
        return {**self.least, **self.company.get(name, {}), name: value}


APIS = {
    "chat": Api(
        CHAT_FIELDS,
        read_chat_body,
        {"messages": [USER]},
        {
            "top_logprobs": {"logprobs": True},
            "logprob_token_ids": {"logprobs": True},
            "length_penalty": {"use_beam_search": True},
            "early_stopping": {"use_beam_search": True},
            "stream_options": {"stream": True},
            "tool_choice": {"tools": [TOOL]},
            "function_call": {"functions": [TOOL["function"]]},
            "min_tokens": {"max_tokens": MAX_TOKENS},
        },
    ),
    "cohere": Api(COHERE_EMBED_FIELDS, read_cohere_embed_body, {"texts": ["x"]}),
    "completions": Api(
        COMPLETION_FIELDS,
        read_completion_body,
        {"prompt": "x"},
        {
            "stream_options": {"stream": True},
            "max_tokens": {"echo": True},
            "logprob_token_ids": {"logprobs": 1},
            "length_penalty": {"use_beam_search": True},
            "early_stopping": {"use_beam_search": True},
            "min_tokens": {"max_tokens": MAX_TOKENS},
        },
    ),
    "embeddings": Api(EMBEDDING_FIELDS, read_embedding_body, {"input": "x"}, {"messages": {"input": None}}),
    "score": Api(
        {name: schema for name, schema in SCORE_FIELDS.items() if name not in ("queries", "text_1")},
        read_score_body,
        {"text_1": "x", "text_2": "y"},
        {"documents": {"text_2": None}},
    ),
    "rerank": Api(RERANK_FIELDS, read_rerank_body, {"query": "x", "documents": ["y"]}),
    "classify": Api(CLASSIFY_FIELDS, read_classify_body, {"input": "x"}),
    "pooling": Api(POOLING_FIELDS, read_pooling_body, {"input": "x"}),
    "tokenize": Api(TOKENIZE_TEXT_FIELDS, read_tokenize_body, {"prompt": "x"}),
    "tokenize a chat": Api(
        TOKENIZE_CHAT_FIELDS,
        read_tokenize_body,
        {"messages": [USER]},
        {"tool_choice": {"tools": [TOOL]}, "function_call": {"functions": [TOOL["function"]]}},
    ),
    "detokenize": Api(DETOKENIZE_FIELDS, read_detokenize_body, {"tokens": [1]}),
}
HINTS = ("user", "safety_identifier", "metadata", "store", "service_tier", "prompt_cache_retention", "reasoning_effort")
_LIKE_CHATS = [("tokenize a chat", "messages"), ("embeddings", "messages")]
CASES = [
    pytest.param(api, name, marks=pytest.mark.slow) if (api, name) in _LIKE_CHATS else (api, name)
    for api in APIS
    for name in APIS[api].fields
]


@pytest.mark.parametrize(("api", "name"), CASES, ids=lambda value: value)
def test_what_a_schema_allows_is_read(api: str, name: str) -> None:
    values = good(APIS[api].fields[name])
    assert values
    for value in values:
        if value is not None or name not in APIS[api].least:
            APIS[api].read(APIS[api].body(name, value))


@pytest.mark.parametrize(("api", "name"), CASES, ids=lambda value: value)
def test_what_a_schema_forbids_is_refused(api: str, name: str) -> None:
    """Of hints by strict servers; others take them, and note that they changed nothing."""
    values = bad(APIS[api].fields[name])
    assert values
    for value in values:
        ignored = Ignored(strict=name in HINTS)
        with pytest.raises(InvalidRequest) as caught:
            APIS[api].read(APIS[api].body(name, value), ignored)
        if name in HINTS:
            ignored = Ignored()
            APIS[api].read(APIS[api].body(name, value), ignored)
            assert [each.split(".")[0] for each in ignored] == [name]
        assert caught.value.field is not None
        assert caught.value.field.split(".")[0].split("[")[0] in (name, "max_tokens")
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("api", APIS)
def test_a_field_that_is_in_no_table_is_named(api: str) -> None:
    for name, named in (("no_such_field", "no_such_field"), ("x" * 1_000_000, "x" * 64), ("ü\r\nx", "???x")):
        ignored = Ignored()
        APIS[api].read(APIS[api].body(name, 1), ignored)
        assert list(ignored) == [named]


@pytest.mark.parametrize("api", APIS)
def test_a_field_that_is_in_no_table_is_refused_by_a_strict_server(api: str) -> None:
    for name in ("no_such_field", "x" * 1_000_000, ""):
        with pytest.raises(InvalidRequest, match="not supported") as caught:
            APIS[api].read(APIS[api].body(name, 1), Ignored(strict=True))
        assert len(str(caught.value)) < 400


def test_every_sampling_parameter_can_be_asked_for() -> None:
    # under names of their own; always on; of transcriptions
    ours = {"structured", "reasoning", "detokenize", "shown_tokens", "retain_prefix", "speech"}
    for fields in (CHAT_FIELDS, COMPLETION_FIELDS):
        assert set(SamplingParams.__struct_fields__) - ours - {"best_of"} <= set(fields)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_a_body_is_an_object(api: str, body: object) -> None:
    with pytest.raises(InvalidRequest, match="body is"):
        APIS[api].read(body)
