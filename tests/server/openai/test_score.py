"""Scores over HTTP."""

import math

import pytest

from quire.text.labels import Labels
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


def test_a_cross_encoder_scores_pairs(ask: Ask, serving: FakeServing) -> None:
    serving.labels = Labels("tiny", ("relevance",))
    body = ask("/v1/score", text_1=["Hello", "a"], text_2=["there", "b"])
    lengths = [len(pair) for pair in serving.embedded]
    expected = [1 / (1 + math.exp(-length / 10)) for length in lengths]
    assert [entry["score"] for entry in body["data"]] == pytest.approx(expected)
    assert body["usage"]["prompt_tokens"] == sum(lengths)
    raw = ask("/v1/score", text_1="Hello", text_2="there", use_activation=False)
    assert raw["data"][0]["score"] == pytest.approx(lengths[0] / 10)


def test_pairs_without_what_frames_them(ask: Ask, serving: FakeServing) -> None:
    serving.labels = Labels("tiny", ("relevance",))
    ask("/v1/score", text_1="Hello", text_2="there", add_special_tokens=False)
    ids = [serving.tokenizer.encode(text, add_special_tokens=False) for text in ("Hello", "there")]
    assert serving.embedded == [[*ids[0], *ids[1]]]
    assert ask("/v1/score", 400, text_1="", text_2="", add_special_tokens=False)["error"]["param"] == "text_2"


def test_long_pairs_are_refused_or_cut(ask: Ask, serving: FakeServing) -> None:
    serving.labels = Labels("tiny", ("relevance",))
    error = ask("/v1/score", 400, text_1="x y " * 100, text_2="b")["error"]
    assert error["code"] == "context_length_exceeded"
    ask("/v1/score", text_1="x y " * 100, text_2="b", truncate_prompt_tokens=-1)
    assert len(serving.embedded[-1]) == serving.max_model_len
    assert serving.embedded[-1][-2:] == [*serving.tokenizer.encode("b", add_special_tokens=False), 2]


def test_a_classifier_of_several_labels_scores_nothing(ask: Ask, serving: FakeServing) -> None:
    serving.labels = Labels("tiny", ("a", "b"))
    assert "has 2 labels" in ask("/v1/score", 400, text_1="a", text_2="b")["error"]["message"]
