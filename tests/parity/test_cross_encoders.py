"""Classifiers and cross-encoders against `transformers`: texts, pairs with their types, and decoders that score."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.processors import BertProcessing, RobertaProcessing
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from quire.config.engine import EngineConfig
from quire.engine.embedding import Embeddings, open_embedder
from tests.engine.text.vocabularies import wordpiece

_SHAPE = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 96,
    "pad_token_id": 0,
}
CASES: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", "num_labels": 1},
    "bert-three": {"model_type": "bert", "num_labels": 3},
    "bert-multi-label": {"model_type": "bert", "num_labels": 3, "problem_type": "multi_label_classification"},
    "roberta": {"model_type": "roberta", "num_labels": 1, "type_vocab_size": 1, "pad_token_id": 1},
    "roberta-two": {"model_type": "roberta", "num_labels": 2, "type_vocab_size": 1, "pad_token_id": 1},
    "xlm-roberta": {"model_type": "xlm-roberta", "num_labels": 1, "type_vocab_size": 1, "pad_token_id": 1},
    "mpnet": {"model_type": "mpnet", "num_labels": 1, "pad_token_id": 1},
    "modernbert-cls": {"model_type": "modernbert", "num_labels": 1, "local_attention": 12, "classifier_pooling": "cls"},
    "modernbert-mean": {"model_type": "modernbert", "num_labels": 3, "classifier_pooling": "mean"},
    "modernbert-biased": {"model_type": "modernbert", "num_labels": 1, "classifier_bias": True, "norm_bias": True},
    "bert-regression": {"model_type": "bert", "num_labels": 1, "problem_type": "regression"},
    "llama-reward": {"model_type": "llama", "num_labels": 1},
    "qwen2": {"model_type": "qwen2", "num_labels": 2, "num_key_value_heads": 2},
    "qwen3-reranker": {"model_type": "qwen3", "num_labels": 1, "num_key_value_heads": 2, "head_dim": 16},
    "qwen3-tied": {"model_type": "qwen3", "num_labels": 1, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "gpt2": {
        "model_type": "gpt2",
        "num_labels": 3,
        "n_embd": 48,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 96,
        "n_inner": 80,
    },
    "mistral": {"model_type": "mistral", "num_labels": 1, "num_key_value_heads": 2, "sliding_window": 8},
}
TEXTS = ["the quick brown fox", "a", "the dog jumps over the lazy dog", "fox and dog"]
QUERY = "the quick dog"


class Case:
    """A checkpoint on disk, its oracle, and the tokenizer that `transformers` makes of the same file."""

    def __init__(self, name: str, folder: Path) -> None:
        logging.getLogger("transformers").setLevel(logging.ERROR)
        given = dict(CASES[name])
        config = AutoConfig.for_model(given.pop("model_type"), **{**_SHAPE, **given})
        config._attn_implementation = "eager"
        torch.manual_seed(len(name))
        self.num_labels, self.problem = given["num_labels"], given.get("problem_type", "")
        self.oracle = AutoModelForSequenceClassification.from_config(config).float().eval()
        with torch.no_grad():
            for parameter in self.oracle.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        self.oracle.save_pretrained(folder)
        saved = json.loads(config.to_json_string(use_diff=False))
        saved["architectures"] = [type(self.oracle).__name__]
        (folder / "config.json").write_text(json.dumps(saved))
        backend = wordpiece()
        frame = RobertaProcessing if "roberta" in name or name == "mpnet" else BertProcessing
        backend.post_processor = frame(("[SEP]", 3), ("[CLS]", 2))
        backend.save(str(folder / "tokenizer.json"))
        self._tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
        self._takes_types = name.startswith("bert")
        self.embeddings: Embeddings = open_embedder(EngineConfig.from_flat(model=str(folder), dtype="float32"))

    @torch.no_grad()
    def raw(self, *texts: str, longest: int | None = None) -> list[float]:
        """What the oracle says of a text or of a pair."""
        cut = {} if longest is None else {"truncation": True, "max_length": longest}
        inputs = self._tokenizer(*texts, return_tensors="pt", return_token_type_ids=self._takes_types, **cut)
        logits: list[float] = self.oracle(**inputs).logits[0].tolist()
        return logits


@pytest.fixture(scope="module", params=CASES)
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
    facts = case.embeddings.model
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
    embeddings = open_embedder(EngineConfig.from_flat(model=str(tmp_path), dtype="float32"))
    assert embeddings.model.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    [output] = embeddings.encode(TEXTS[:1], pooling_task="reward")
    assert output.outputs.data == close(case.raw(TEXTS[0]))
    embeddings.close()
