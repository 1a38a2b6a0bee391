"""What families read of a classifier's config: names of labels, and what becomes of their numbers."""

from typing import Any

import pytest

from quire.models.registry import describe
from quire.spec.model import ClassifierSpec

_SHAPE: dict[str, Any] = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 8,
    "vocab_size": 9,
    "max_position_embeddings": 16,
}


def classifier(model_type: str, architecture: str, **given: Any) -> ClassifierSpec:
    config = {**_SHAPE, "model_type": model_type, "architectures": [architecture], **given}
    found = describe(config, "config.json").classifier
    assert found is not None
    return found


KINDS = pytest.mark.parametrize(
    ("model_type", "architecture"),
    [
        ("bert", "BertForSequenceClassification"),
        ("modernbert", "ModernBertForSequenceClassification"),
        ("mpnet", "MPNetForSequenceClassification"),
        ("llama", "LlamaForSequenceClassification"),
    ],
)


@KINDS
@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ({"id2label": {"1": "yes", "0": "no", "10": "later", "2": "maybe"}}, ("no", "yes", "maybe", "later")),
        ({"id2label": {0: "only"}, "num_labels": 3}, ("only",)),
        ({"num_labels": 3}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"id2label": None}, ("LABEL_0", "LABEL_1")),
        ({"id2label": {"no": "number"}}, ("LABEL_0", "LABEL_1")),
    ],
)
def test_labels(model_type: str, architecture: str, given: dict[str, Any], labels: tuple[str, ...]) -> None:
    found = classifier(model_type, architecture, **given)
    assert found.labels == labels
    assert found.out.rows == len(labels)


@KINDS
@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (None, (False, False)),
        ("single_label_classification", (False, False)),
        ("multi_label_classification", (True, False)),
        ("regression", (False, True)),
    ],
)
def test_problems(model_type: str, architecture: str, problem: str | None, expected: tuple[bool, bool]) -> None:
    found = classifier(model_type, architecture, problem_type=problem)
    assert (found.multi_label, found.regression) == expected


def test_a_model_that_generates_has_no_labels() -> None:
    config = {**_SHAPE, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "id2label": {"0": "a"}}
    assert describe(config, "config.json").classifier is None
