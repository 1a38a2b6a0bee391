"""Qwen3-Reranker as published, and other causal LMs that score by the logits of a word or two, by `transformers`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import CheckpointError, InvalidRequest
from quire.engine.llm import LLM
from quire.models.loading.header import read_model_facts
from tests.parity.tiny_reranker import QUERY, SETTINGS, TEXTS, TinyReranker

INSTRUCTION = "Judge which text has an animal in it?"


def close(expected: list[float]) -> Any:
    return pytest.approx(expected, abs=2e-5, rel=1e-4)


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def reranker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LLM, TinyReranker]]:
    folder = tmp_path_factory.mktemp("reranker")
    oracle = TinyReranker(folder, tie_word_embeddings=request.param)
    llm = LLM(str(folder), dtype="float32")
    yield llm, oracle
    llm.close()


def test_pairs_stand_in_the_published_prompt(reranker: tuple[LLM, TinyReranker]) -> None:
    llm, oracle = reranker
    for text, output in zip(TEXTS, llm.score(QUERY, TEXTS), strict=True):
        assert output.prompt_token_ids == oracle.prompt(QUERY, text)
    assert oracle.tokenizer.token_to_id("?Ċ") in oracle.prompt(QUERY, "a")  # one token of the query and what follows


def test_scores_are_the_share_of_yes(reranker: tuple[LLM, TinyReranker]) -> None:
    llm, oracle = reranker
    expected = [oracle.score(oracle.prompt(QUERY, text)) for text in TEXTS]
    assert max(expected) - min(expected) > 0.01  # otherwise any would do
    assert [output.outputs.score for output in llm.score(QUERY, TEXTS)] == close(expected)


def test_raw_scores_are_differences_of_logits(reranker: tuple[LLM, TinyReranker]) -> None:
    llm, oracle = reranker
    logits = [oracle.logits(oracle.prompt(QUERY, text)) for text in TEXTS]
    found = [output.outputs.score for output in llm.score(QUERY, TEXTS, use_activation=False)]
    assert found == close([yes - no for no, yes in logits])


def test_an_instruction_takes_the_place_of_the_usual_one(reranker: tuple[LLM, TinyReranker]) -> None:
    llm, oracle = reranker
    [output] = llm.score(QUERY, TEXTS[:1], instruction=INSTRUCTION)
    prompt = oracle.prompt(QUERY, TEXTS[0], INSTRUCTION)
    assert output.prompt_token_ids == prompt
    assert output.outputs.score == close(oracle.score(prompt))


def test_a_label_is_the_word(reranker: tuple[LLM, TinyReranker]) -> None:
    llm, oracle = reranker
    assert llm._embeddings.model.labels == ("yes",)
    [output] = llm.classify(TEXTS[:1])
    assert output.outputs.probs == close([oracle.score(oracle.tokenizer.encode(TEXTS[0]).ids)])


@pytest.mark.parametrize(
    ("model_type", "more"),
    [("gemma2", {"query_pre_attn_scalar": 16, "final_logit_softcapping": 2.0}), ("granite", {"logits_scaling": 3.0})],
)
@pytest.mark.parametrize("words", [["no", "yes"], ["yes"]])
def test_other_families_and_a_single_word(
    model_type: str, more: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    """Their logits are capped or scaled, which is no matter of taste for a score; pairs are the tokenizer's own."""
    oracle = TinyReranker(tmp_path, model_type, {"classifier_from_token": words}, **more)
    llm = LLM(str(tmp_path), dtype="float32")
    for output in llm.score(QUERY, TEXTS, use_activation=False):
        logits = oracle.logits(output.prompt_token_ids)
        assert output.outputs.score == close(logits[-1] - sum(logits[:-1]))
    with pytest.raises(InvalidRequest, match=r"instruction is given, and .* reads pairs without one"):
        llm.score(QUERY, TEXTS, instruction=INSTRUCTION)
    llm.close()


def test_bfloat16_multiplies_the_rows_in_float32(tmp_path: Path) -> None:
    oracle = TinyReranker(tmp_path)
    llm = LLM(str(tmp_path), dtype="bfloat16")
    expected = [oracle.score(oracle.prompt(QUERY, text)) for text in TEXTS]
    assert [output.outputs.score for output in llm.score(QUERY, TEXTS)] == pytest.approx(expected, abs=0.05)
    llm.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no", "yess"], r"'yess' is no single token of .*tokenizer.json; give words as they are spelled there"),
        (["no", "maybe", "yes"], r"must be one word, as in \[\"Yes\"\], or two different ones"),
        ([], "must be one word"),
        (["yes", "yes"], "two different ones"),
        ("yes", "gives classifier_from_token as yes"),
    ],
)
def test_words_that_cannot_score_are_refused(words: object, message: str, tmp_path: Path) -> None:
    TinyReranker(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('["no", "yes"]', json.dumps(words)))
    with pytest.raises(CheckpointError, match=message):
        read_model_facts(str(tmp_path))


def test_a_vocabulary_that_is_not_there(tmp_path: Path) -> None:
    TinyReranker(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"holds no tokenizer.json to look the words up in"):
        read_model_facts(str(tmp_path))


def test_models_of_transformers_are_refused(tmp_path: Path) -> None:
    TinyReranker(tmp_path, "olmo", SETTINGS | {"architectures": ["OlmoForCausalLM"]})
    with pytest.raises(CheckpointError, match="this OlmoForCausalLM runs through transformers' modules; leave it out"):
        read_model_facts(str(tmp_path))
