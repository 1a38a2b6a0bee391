"""Embedding and score bodies."""

from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.openai.embedding_body import read_embedding_body, read_score_body


def test_plain_embedding() -> None:
    body = read_embedding_body({"input": ["a", [1, 2]], "model": "m"})
    assert (body.model, body.inputs, body.base64, body.normalize) == ("m", ["a", [1, 2]], False, True)
    assert (body.pooling, body.dimensions, body.truncate_prompt_tokens) == (None, None, None)


def test_embedding_fields() -> None:
    body = read_embedding_body(
        {"input": [1, 2], "encoding_format": "base64", "pooling": "cls", "normalize": False, "user": "u"}
    )
    assert (body.inputs, body.base64, body.pooling, body.normalize) == ([[1, 2]], True, "cls", False)
    assert body.labels == {"user": "u"}


def test_both_names_of_the_sides() -> None:
    first = read_score_body({"text_1": "q", "text_2": ["a", "b"]})
    second = read_score_body({"queries": ["q"], "documents": ["a", "b"]})
    assert (first.first, first.second) == (second.first, second.second) == (["q"], ["a", "b"])
    assert second.names == ("queries", "documents")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"text_1": "a"}, "text_2"),
        ({"text_2": "a"}, "text_1"),
        ({"text_1": "a", "queries": "a", "text_2": "b"}, "queries"),
        ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ({"text_1": [], "text_2": "b"}, "text_1"),
        ({"text_1": [1], "text_2": "b"}, "text_1"),
    ],
)
def test_sides_that_do_not_match(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_score_body(given)
    assert caught.value.field == field
