"""Scores over HTTP."""

import math

import pytest

from tests.server.openai.conftest import Ask
from tests.server.openai.fake_serving import FakeServing


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
def test_one_with_each_of_several(ask: Ask, serving: FakeServing, path: str) -> None:
    body = ask(path, text_1="Hello", text_2=["Hello", "Hello there"])
    first, same, other = (len(prompt) for prompt in serving.embedded)
    assert [entry["score"] for entry in body["data"]] == pytest.approx([1.0, math.cos(first - other)])
    assert [(entry["index"], entry["object"]) for entry in body["data"]] == [(0, "score"), (1, "score")]
    assert body["usage"]["prompt_tokens"] == first + same + other


def test_pair_by_pair(ask: Ask) -> None:
    body = ask("/v1/score", queries=["a", "b"], documents=["a", "b"])
    assert [entry["score"] for entry in body["data"]] == pytest.approx([1.0, 1.0])


def test_errors_use_the_bodys_own_names(ask: Ask) -> None:
    assert ask("/v1/score", 400, queries="", documents="x")["error"]["param"] == "queries"
    assert ask("/v1/score", 400, text_1="x", text_2=["x", ""])["error"]["param"] == "text_2"
    assert ask("/v1/score", 400, queries=["a", "b"], documents=["c", "d", "e"])["error"]["param"] == "queries"
