"""Embeddings: limits, truncation and scores with a fake executor, and a tiny encoder opened whole."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.core.errors import CheckpointError, InvalidRequest, RequestTooLarge
from quire.core.pooling import Pooling
from quire.engine.embedding import Embeddings, open_embedder
from quire.engine.text.special_tokens import SpecialTokens
from quire.engine.text.tokenizer import Tokenizer
from quire.executor.embedding import EmbeddingExecutor
from tests.config.examples import TINY
from tests.engine.text.vocabularies import wordpiece
from tests.parity.tiny_encoders import make_encoder

MODEL = replace(TINY, vocab_size=512)


class FakeExecutor(EmbeddingExecutor):
    """The vector of a prompt points where its first token is even or odd."""

    def __init__(self) -> None:
        self.calls: list[tuple[Pooling | None, bool]] = []

    def embed(
        self, prompts: Sequence[Sequence[int]], pooling: Pooling | None = None, *, normalized: bool = True
    ) -> list[list[float]]:
        self.calls.append((pooling, normalized))
        return [[0.0, 1.0] if prompt[0] % 2 else [1.0, 0.0] for prompt in prompts]


def make(tokenizer: Tokenizer | None = None, *, lower_case: bool = False) -> tuple[Embeddings, FakeExecutor]:
    executor = FakeExecutor()
    return Embeddings(executor, tokenizer, MODEL, 8, lower_case=lower_case), executor


def test_outputs_are_in_order_and_say_what_was_embedded() -> None:
    embeddings, executor = make()
    outputs = embeddings.embed([[1, 2], [4]], pooling="cls", normalize=False)
    assert [output.outputs.embedding for output in outputs] == [[0.0, 1.0], [1.0, 0.0]]
    assert [output.prompt_token_ids for output in outputs] == [[1, 2], [4]]
    assert len({output.request_id for output in outputs}) == 2
    assert outputs[0].outputs.hidden_size == 2
    assert executor.calls == [("cls", False)]


def test_scores_are_cosines_of_pairs_or_of_one_with_all() -> None:
    pad = Tokenizer(wordpiece(), SpecialTokens(pad=0), source="test")
    embeddings, _ = make(pad)
    one_to_many = embeddings.score([[1]], [[3], [2], [5]])
    assert [output.outputs.score for output in one_to_many] == [1.0, 0.0, 1.0]
    assert one_to_many[1].prompt_token_ids == [1, 0, 2]
    assert [output.outputs.score for output in embeddings.score([[1], [2]], [[2], [4]])] == [0.0, 1.0]
    assert make()[0].score([[1]], [[3]])[0].prompt_token_ids == [1, 3]
    assert embeddings.score("a text", "a text")[0].outputs.score == 1.0


def test_truncation() -> None:
    embeddings, _ = make(Tokenizer(wordpiece(), SpecialTokens(), source="test"))
    assert embeddings.embed([list(range(20))], truncate_prompt_tokens=3)[0].prompt_token_ids == [0, 1, 2]
    assert embeddings.embed([list(range(20))], truncate_prompt_tokens=-1)[0].prompt_token_ids == list(range(8))
    ids = embeddings.embed(["the quick brown fox jumps over it"], truncate_prompt_tokens=5)[0].prompt_token_ids
    assert (len(ids), ids[0], ids[-1]) == (5, 2, 3)


def test_lower_case_comes_before_the_tokenizer() -> None:
    backend = wordpiece()
    backend.normalizer = None
    tokenizer = Tokenizer(backend, SpecialTokens(), source="test")
    [output] = make(tokenizer, lower_case=True)[0].embed(["THE DOG"], truncate_prompt_tokens=-1)
    assert output.prompt_token_ids == tokenizer.encode("the dog")


@pytest.mark.parametrize(
    ("prompts", "settings", "message"),
    [
        ([[1], []], {}, "has no tokens"),
        ([list(range(9))], {}, "a prompt has 9 tokens, and the model takes 8"),
        ([[1, 512]], {}, "token id 512 is not in the vocabulary, which goes from 0 to 511"),
        ([[-1]], {}, "token id -1"),
        ([[1]], {"pooling": "max"}, "pooling is 'max', but it must be one of mean, last, cls"),
        ([[1]], {"truncate_prompt_tokens": 9}, "truncate_prompt_tokens is 9, but it must be from 1 to 8"),
        ([[1]], {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens is 0"),
        (["text"], {}, "without its tokenizer"),
    ],
)
def test_what_cannot_be_embedded_is_refused(
    prompts: list[list[int]], settings: dict[str, object], message: str
) -> None:
    embeddings, executor = make()
    with pytest.raises(InvalidRequest, match=message):
        embeddings.embed(prompts, **settings)  # type: ignore[arg-type]
    assert executor.calls == []


def test_too_long_is_an_error_of_its_own() -> None:
    with pytest.raises(RequestTooLarge):
        make()[0].embed([[1] * 9])


def test_scores_need_matching_counts() -> None:
    with pytest.raises(InvalidRequest, match="text_1 has 2 texts and text_2 3"):
        make()[0].score([[1], [2]], [[1], [2], [3]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_encoder("bert", tmp_path)
    wordpiece().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_an_encoder_opened_whole(folder: Path) -> None:
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12}))
    embeddings = open_embedder(EngineConfig.from_flat(model=str(folder)))
    assert (embeddings.max_length, embeddings.model.is_encoder) == (12, True)
    [output] = embeddings.embed([[2, 9, 3]])
    assert output.outputs.hidden_size == 48
    assert sum(x * x for x in output.outputs.embedding) == pytest.approx(1.0, abs=1e-5)
    [score] = embeddings.score([[2, 9, 3]], [[2, 9, 3]])
    assert score.outputs.score == pytest.approx(1.0, abs=1e-5)
    embeddings.close()
    embeddings.close()


def test_a_classifier_is_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"is a classifier \(BertForSequenceClassification\)"):
        open_embedder(EngineConfig.from_flat(model=str(folder)))
