"""Reranking over HTTP: by vectors, and by a model that reads query and document at once."""

import math
from typing import Any

import pytest

from quire.server.openai import compare
from quire.text.labels import Labels
from tests.server.openai.conftest import Ask
from tests.server.openai.fake_serving import FakeServing

DOCUMENTS = ["Hello", "Hello there you", "Hello there"]


@pytest.fixture
def cross_encoder(serving: FakeServing) -> FakeServing:
    serving.labels = Labels("tiny", ("relevance",))
    return serving


@pytest.mark.parametrize(("path", "version"), [("/rerank", "1"), ("/v1/rerank", "1"), ("/v2/rerank", "2")])
def test_the_best_come_first(ask: Ask, serving: FakeServing, path: str, version: str) -> None:
    body = ask(path, query="Hello", documents=DOCUMENTS, model="tiny")
    query, *lengths = (len(prompt) for prompt in serving.embedded)
    scores = [math.cos(query - length) for length in lengths]
    best = sorted(range(3), key=lambda index: -scores[index])
    assert [result["index"] for result in body["results"]] == best
    found = [result["relevance_score"] for result in body["results"]]
    assert found == pytest.approx([scores[index] for index in best])
    assert [result["document"] for result in body["results"]] == [{"text": DOCUMENTS[index]} for index in best]
    used = query + sum(lengths)
    assert (body["model"], body["usage"]["total_tokens"]) == ("tiny", used)
    assert body["meta"] == {"api_version": {"version": version}, "tokens": {"input_tokens": used}}


def test_a_cross_encoder_reads_pairs(ask: Ask, cross_encoder: FakeServing) -> None:
    body = ask("/v1/rerank", query="Hello", documents=[{"text": text} for text in DOCUMENTS], top_n=2)
    assert [result["index"] for result in body["results"]] == [1, 2]
    pair = cross_encoder.embedded[1]
    assert body["results"][0]["relevance_score"] == pytest.approx(1 / (1 + math.exp(-len(pair) / 10)))
    query = cross_encoder.tokenizer.encode("Hello", add_special_tokens=False)
    document = cross_encoder.tokenizer.encode(DOCUMENTS[1], add_special_tokens=False)
    assert pair == [1, *query, 2, *document, 2]
    assert cross_encoder.pairs is not None
    assert cross_encoder.pairs[1] == [0] * (len(query) + 2) + [1] * (len(document) + 1)
    assert body["usage"]["prompt_tokens"] == sum(map(len, cross_encoder.embedded))


def test_raw_scores_and_no_documents(ask: Ask, cross_encoder: FakeServing) -> None:
    body = ask("/rerank", query="Hello", documents=["a"], use_activation=False, return_documents=False)
    length = len(cross_encoder.embedded[0])
    assert body["results"] == [{"index": 0, "relevance_score": pytest.approx(length / 10)}]


@pytest.mark.parametrize("labels", [(), ("relevance",)])
def test_long_documents_are_cut(ask: Ask, serving: FakeServing, labels: tuple[str, ...]) -> None:
    serving.labels = Labels("tiny", labels)
    ask("/rerank", query="Hello", documents=["x y " * 100])
    assert len(serving.embedded[-1]) == serving.max_model_len
    ask("/rerank", query="Hello", documents=["x y " * 100], max_tokens_per_doc=2)
    assert len(serving.embedded[-1]) < 20
    ask("/rerank", query="x y " * 100, documents=["x"], truncate_prompt_tokens=10)
    assert len(serving.embedded[-1]) <= 10


def test_a_long_query_is_not(ask: Ask, cross_encoder: FakeServing) -> None:
    error = ask("/rerank", 400, query="x y " * 100, documents=["x"])["error"]
    assert (error["param"], error["code"]) == ("query", "context_length_exceeded")
    assert not cross_encoder.embedded


def test_all_pairs_together_are_bounded(ask: Ask, cross_encoder: FakeServing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "MOST_PAIR_TOKENS", 40)
    error = ask("/rerank", 400, query="Hello", documents=["Hello there"] * 10)["error"]
    assert error["param"] == "documents"
    assert "one request may have 40" in error["message"]


def test_the_models_prompts_for_searches(ask: Ask, serving: FakeServing) -> None:
    serving.prompts = {"query": "Question ", "passage": "Text "}
    ask("/rerank", query="a", documents=["b"])
    assert serving.embedded == [serving.tokenizer.encode("Question a"), serving.tokenizer.encode("Text b")]


@pytest.mark.parametrize(
    ("labels", "given", "param"),
    [
        ((), {"query": "a", "documents": [""]}, "documents"),
        ((), {"query": "a", "documents": ["b"], "use_activation": True}, "use_activation"),
        ((), {"query": "a", "documents": ["b"], "truncate_prompt_tokens": 65}, "truncate_prompt_tokens"),
        (("a", "b"), {"query": "a", "documents": ["b"]}, "model"),
        (("a",), {"query": "a", "documents": ["b"], "truncate_prompt_tokens": 1}, "truncate_prompt_tokens"),
    ],
)
def test_refusals(ask: Ask, serving: FakeServing, labels: tuple[str, ...], given: dict[str, Any], param: str) -> None:
    serving.labels = Labels("tiny", labels)
    assert ask("/v1/rerank", 400, **given)["error"]["param"] == param
    assert not serving.embedded


def test_unknown_models(ask: Ask) -> None:
    ask("/v2/rerank", 404, query="a", documents=["b"], model="rerank-v3.5")
