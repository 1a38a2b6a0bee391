"""Rerank bodies, as the clients of Cohere, Jina and vLLM write them."""

from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.cohere.rerank_body import read_rerank_body


def test_cohere() -> None:
    body = read_rerank_body({"model": "m", "query": "q", "documents": ["a", "b"], "top_n": 1, "max_tokens_per_doc": 9})
    assert (body.query, body.documents, body.top_n, body.max_tokens_per_doc) == ("q", ["a", "b"], 1, 9)
    assert body.return_documents


def test_jina() -> None:
    body = read_rerank_body({"query": "q", "documents": [{"text": "a"}, "b"], "return_documents": False})
    assert (body.documents, body.return_documents, body.top_n) == (["a", "b"], False, None)


def test_vllm() -> None:
    body = read_rerank_body(
        {"query": "q", "documents": ["a"], "top_n": 0, "truncate_prompt_tokens": -1, "use_activation": False}
    )
    assert (body.top_n, body.truncate_prompt_tokens, body.use_activation) == (None, -1, False)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": ["q"], "documents": ["a"]}, "query"),
        ({"query": "q"}, "documents"),
        ({"query": "q", "documents": []}, "documents"),
        ({"query": "q", "documents": "a"}, "documents"),
        ({"query": "q", "documents": [5]}, "documents"),
        ({"query": "q", "documents": [{}]}, "documents"),
        ({"query": "q", "documents": [{"text": 5}]}, "documents"),
        ({"query": "q", "documents": [{"text": "a", "image": "b"}]}, "documents[].image"),
        ({"query": "q", "documents": ["a"] * 2049}, "documents"),
        ({"query": "q", "documents": ["a"], "rank_fields": ["x"]}, "rank_fields"),
        ({"query": "q", "documents": ["a"], "max_chunks_per_doc": 1}, "max_chunks_per_doc"),
        ({"query": "q", "documents": ["a"], "top_n": -1}, "top_n"),
    ],
)
def test_refusals(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_rerank_body(given)
    assert caught.value.field == field
