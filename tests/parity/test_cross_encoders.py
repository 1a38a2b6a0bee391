"""Classifiers and cross-encoders against `transformers`: texts, pairs with their types, and decoders that score."""

import inspect
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
from quire.models.encoder import Encoder
from tests.engine.text.vocabularies import wordpiece

# heads and token types of models come with the models themselves
pytestmark = pytest.mark.skipif(
    "types" not in inspect.signature(Encoder.forward).parameters, reason="the models have no classification heads yet"
)

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
    "llama-reward": {"model_type": "llama", "num_labels": 1},
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
        self.num_labels, self.is_multi_label = given["num_labels"], "problem_type" in given
        self.oracle = AutoModelForSequenceClassification.from_config(config).float().eval()
        with torch.no_grad():
            for parameter in self.oracle.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        self.oracle.save_pretrained(folder)
        saved = json.loads(config.to_json_string(use_diff=False))
        saved["architectures"] = [type(self.oracle).__name__]
        (folder / "config.json").write_text(json.dumps(saved))
        backend = wordpiece()
        frame = RobertaProcessing if name.startswith("roberta") else BertProcessing
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
    alone = case.is_multi_label or case.num_labels == 1
    for text, output in zip(TEXTS, case.embeddings.classify(TEXTS), strict=True):
        raw = torch.tensor(case.raw(text))
        expected = torch.sigmoid(raw) if alone else torch.softmax(raw, 0)
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
    assert facts.multi_label is case.is_multi_label
