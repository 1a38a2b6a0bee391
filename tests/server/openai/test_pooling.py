"""Pooling over HTTP."""

import base64
import struct
from typing import Any

import pytest

from quire.server.openai import pooling
from quire.text.labels import Labels
from tests.server.openai.conftest import Ask
from tests.server.openai.fake_serving import FakeServing


@pytest.mark.parametrize("path", ["/pooling", "/v1/pooling"])
def test_a_vector_for_every_token(ask: Ask, serving: FakeServing, path: str) -> None:
    body = ask(path, input=[[5, 6], [7]])
    assert [entry["data"] for entry in body["data"]] == [[[5, 0, 0], [6, 0, 0]], [[7, 0, 0]]]
    assert {entry["object"] for entry in body["data"]} == {"pooling"}
    assert body["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert serving.poolings == [(None, True)]


def test_base64_holds_row_after_row(ask: Ask) -> None:
    packed = ask("/pooling", input=[5, 6], encoding_format="base64")["data"][0]["data"]
    assert struct.unpack("<6f", base64.b64decode(packed)) == (5, 0, 0, 6, 0, 0)


def test_a_vector_for_a_text(ask: Ask, serving: FakeServing) -> None:
    body = ask("/pooling", input="Hello", task="embed", normalize=False, pooling="cls", dimensions=3)
    assert len(body["data"][0]["data"]) == 3
    assert serving.poolings == [("cls", False)]


@pytest.mark.parametrize(
    ("task", "expected"), [(None, 0.5498), ("classify", 0.5498), ("score", 0.5498), ("reward", 0.2)]
)
def test_a_classifiers_numbers(ask: Ask, serving: FakeServing, task: str | None, expected: float) -> None:
    serving.labels = Labels("tiny", ("reward",))
    assert ask("/pooling", input=[5, 6], task=task)["data"][0]["data"] == pytest.approx([expected], abs=1e-4)


def test_prompts(ask: Ask, serving: FakeServing) -> None:
    serving.prompts = {"query": "Question "}
    ask("/pooling", input="a", prompt_name="query")
    ask("/v1/embeddings", input="a", prompt_name="query")
    assert serving.embedded == [serving.tokenizer.encode("Question a")] * 2
    for path in ("/pooling", "/v1/embeddings"):
        error = ask(path, 400, input="a", prompt_name="other")["error"]
        assert (error["param"], "one of query" in error["message"]) == ("prompt_name", True)
        assert ask(path, 400, input=[5], prompt_name="query")["error"]["param"] == "prompt_name"


@pytest.mark.parametrize(
    ("labels", "given", "param"),
    [
        ((), {"task": "classify"}, "model"),
        ((), {"task": "rank"}, "task"),
        ((), {"pooling": "cls"}, "pooling"),
        ((), {"use_activation": False}, "use_activation"),
        ((), {"dimensions": 2}, "dimensions"),
        (("a",), {"task": "token_embed"}, "model"),
        (("a",), {"normalize": True}, "normalize"),
        (("a",), {"task": "reward", "use_activation": True}, "use_activation"),
        (("a", "b"), {"task": "score"}, "model"),
    ],
)
def test_refusals(ask: Ask, serving: FakeServing, labels: tuple[str, ...], given: dict[str, Any], param: str) -> None:
    serving.labels = Labels("tiny", labels)
    assert ask("/pooling", 400, input="x", **given)["error"]["param"] == param
    assert not serving.embedded


def test_answers_are_bounded(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "MOST_NUMBERS", 8)
    error = ask("/pooling", 400, input=[5, 6, 7])["error"]
    assert (error["param"], "at most 8" in error["message"]) == ("input", True)
    ask("/pooling", input=[5, 6, 7], task="embed")
