"""Classifiers and cross-encoders against `transformers`: texts, pairs with their types, and decoders that score."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.engine.llm import LLM
from tests.parity.tiny_classifiers import CLASSIFIERS, OTHER_DECODERS, TinyClassifier

TEXTS = ["the quick brown fox", "a", "the dog jumps over the lazy dog", "fox and dog"]
QUERY = "the quick dog"


class Case(TinyClassifier):
    """With quire's embedder of the same folder."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder)
        self.embeddings = LLM(str(folder), dtype="float32")


@pytest.fixture(scope="module", params=CLASSIFIERS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    made = Case(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.embeddings.close()


def close(expected: list[float]) -> Any:
    return pytest.approx(expected, abs=2e-5, rel=1e-4)


def test_raw_scores_of_texts(case: Case) -> None:
    found = case.embeddings.encode(TEXTS, pooling_task="reward")
    for text, output in zip(TEXTS, found, strict=True):
        assert output.outputs.data == close(case.raw(text))


def test_probabilities(case: Case) -> None:
    alone = case.problem == "multi_label_classification" or case.num_labels == 1
    for text, output in zip(TEXTS, case.embeddings.classify(TEXTS), strict=True):
        raw = torch.tensor(case.raw(text))
        expected = torch.sigmoid(raw) if alone else torch.softmax(raw, 0)
        if case.problem == "regression":
            expected = raw
        assert output.outputs.probs == close(expected.tolist())


def test_pairs(case: Case) -> None:
    """As sentence-transformers' CrossEncoder: the sigmoid of the only label."""
    if case.num_labels > 1:
        pytest.skip("pairs are scored by models with one label")
    for text, output in zip(TEXTS, case.embeddings.score(QUERY, TEXTS), strict=True):
        [raw] = case.raw(QUERY, text)
        assert output.outputs.score == close(torch.sigmoid(torch.tensor(raw)).item())
    raws = case.embeddings.score(QUERY, TEXTS, use_activation=False)
    assert [output.outputs.score for output in raws] == close([case.raw(QUERY, text)[0] for text in TEXTS])


@pytest.mark.parametrize("longest", [6, 9, 12])
def test_long_pairs_are_cut_alike(case: Case, longest: int) -> None:
    if case.num_labels > 1:
        pytest.skip("pairs are scored by models with one label")
    query = "the quick brown fox jumps over it"
    found = case.embeddings.score(query, TEXTS, use_activation=False, truncate_prompt_tokens=longest)
    expected = [case.raw(query, text, longest=longest)[0] for text in TEXTS]
    assert [output.outputs.score for output in found] == close(expected)


def test_labels_are_the_checkpoints(case: Case) -> None:
    facts = case.embeddings._embeddings.model
    assert facts.labels == tuple(case.oracle.config.id2label[place] for place in range(case.num_labels))
    assert facts.multi_label is (case.problem == "multi_label_classification")
    assert facts.regression is (case.problem == "regression")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    made = Case("bert", tmp_path_factory.mktemp("bert-types"))
    yield made
    made.embeddings.close()


@torch.no_grad()
def test_the_second_text_of_a_pair_has_the_second_type(bert: Case) -> None:
    """Types are no matter of taste: the same tokens with types of one text get another number."""
    [found] = bert.embeddings.score(QUERY, TEXTS[:1], use_activation=False)
    ids = torch.tensor([found.prompt_token_ids])
    assert bert.oracle.config.type_vocab_size == 2
    of_one_text = bert.oracle(ids, token_type_ids=torch.zeros_like(ids)).logits.item()
    assert found.outputs.score == close(bert.raw(QUERY, TEXTS[0])[0])
    assert abs(found.outputs.score - of_one_text) > 1e-3


def test_a_config_without_names_of_labels(tmp_path: Path) -> None:
    case = Case("bert-three", tmp_path)
    case.embeddings.close()
    config = json.loads((tmp_path / "config.json").read_text())
    del config["id2label"], config["label2id"]
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_labels": 3}))
    embeddings = LLM(str(tmp_path), dtype="float32")
    assert embeddings._embeddings.model.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    [output] = embeddings.encode(TEXTS[:1], pooling_task="reward")
    assert output.outputs.data == close(case.raw(TEXTS[0]))
    embeddings.close()


@pytest.mark.parametrize("name", OTHER_DECODERS)
def test_other_decoders_score_alike(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    for text, output in zip(TEXTS, case.embeddings.encode(TEXTS, pooling_task="reward"), strict=True):
        assert output.outputs.data == close(case.raw(text))
    case.embeddings.close()
