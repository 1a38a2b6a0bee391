"""Classification over HTTP."""

import math
from typing import Any

import pytest

from quire.text.labels import Labels
from tests.server.openai.conftest import Ask
from tests.server.openai.fake_serving import FakeServing


@pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
def test_labels_and_probabilities(ask: Ask, serving: FakeServing, path: str) -> None:
    serving.labels = Labels("tiny", ("good", "bad"))
    body = ask(path, input=["Hello there", [5, 6]], model="tiny")
    assert [(entry["index"], entry["label"], entry["num_classes"]) for entry in body["data"]] == [
        (0, "good", 2),
        (1, "good", 2),
    ]
    weight = math.exp(2 / 10)
    assert body["data"][1]["probs"] == pytest.approx([weight / (weight + 1), 1 / (weight + 1)])
    used = sum(map(len, serving.embedded))
    assert body["usage"] == {"prompt_tokens": used, "total_tokens": used}
    assert body["object"] == "list"


@pytest.mark.parametrize("labels", [Labels("tiny", ("good",)), Labels("tiny", ("good", "bad"), multi_label=True)])
def test_labels_on_their_own(ask: Ask, serving: FakeServing, labels: Labels) -> None:
    serving.labels = labels
    probs = ask("/classify", input=[5, 6])["data"][0]["probs"]
    assert probs == pytest.approx([1 / (1 + math.exp(-0.2)), 0.5][: len(labels.names)])


def test_raw_scores(ask: Ask, serving: FakeServing) -> None:
    serving.labels = Labels("tiny", ("good", "bad"))
    assert ask("/classify", input=[5, 6], use_activation=False)["data"][0]["probs"] == [0.2, 0.0]


@pytest.mark.parametrize(
    ("labels", "given", "param"),
    [
        ((), {"input": "x"}, "model"),
        (("a", "b"), {"input": ""}, "input"),
        (("a", "b"), {"input": "x y " * 100}, "input"),
        (("a", "b"), {"input": "x", "prompt_name": "query"}, "prompt_name"),
    ],
)
def test_refusals(ask: Ask, serving: FakeServing, labels: tuple[str, ...], given: dict[str, Any], param: str) -> None:
    serving.labels = Labels("tiny", labels)
    assert ask("/classify", 400, **given)["error"]["param"] == param
    assert not serving.embedded


def test_a_classifier_does_not_embed(ask: Ask, serving: FakeServing) -> None:
    serving.labels = Labels("tiny", ("a", "b"))
    assert "is a classifier" in ask("/v1/embeddings", 400, input="x")["error"]["message"]
