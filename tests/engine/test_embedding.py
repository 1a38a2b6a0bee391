"""Embeddings: limits, truncation and scores with a fake executor, and a tiny encoder opened whole."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tokenizers.processors import BertProcessing

from quire.config.facts import ModelFacts
from quire.core.errors import CheckpointError, InvalidRequest, RequestTooLarge
from quire.core.pooling import Rows
from quire.core.pooling_params import PoolingParams
from quire.engine.embedding import Embeddings
from quire.engine.llm import LLM
from quire.models.loading.sentence_settings import SentenceSettings
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ClassifierSpec
from quire.text.special_tokens import SpecialTokens
from quire.text.tokenizer import Tokenizer
from tests.config.examples import TINY, with_spec
from tests.parity.tiny_encoders import make_encoder
from tests.text.vocabularies import wordpiece

MODEL = with_spec(TINY, vocab_size=512)


def labelled(labels: tuple[str, ...]) -> ModelFacts:
    """A classifier, or without labels none."""
    out = MatrixSpec((Part("score", "score", len(labels)),), MODEL.spec.hidden_size, "none")
    return with_spec(MODEL, classifier=ClassifierSpec(labels, "last", out) if labels else None)


class FakeEngine:
    """The vector of a prompt points where its first token is even or odd; scores are as many as there are labels."""

    def __init__(self) -> None:
        self.asked: list[PoolingParams] = []
        self.num_labels = 0

    def pool(self, prompts: Sequence[list[int]], params: Sequence[PoolingParams]) -> list[Rows]:
        self.asked.extend(params)
        return [self._rows(prompt, asked) for prompt, asked in zip(prompts, params, strict=True)]

    def _rows(self, prompt: list[int], asked: PoolingParams) -> Rows:
        if asked.readout == "token_embed":
            return [[float(token), float(asked.normalize)] for token in prompt]
        if asked.readout == "classify":
            return [[float(len(prompt)), 0.0, 0.0][: self.num_labels]]
        return [[0.0, 1.0] if prompt[0] % 2 else [1.0, 0.0]]


def make(
    tokenizer: Tokenizer | None = None, settings: SentenceSettings | None = None, *, labels: tuple[str, ...] = ()
) -> tuple[Embeddings, FakeEngine]:
    engine = FakeEngine()
    engine.num_labels = len(labels)
    return Embeddings(engine.pool, tokenizer, labelled(labels), 8, settings), engine


def bert_pairs() -> Tokenizer:
    backend = wordpiece()
    backend.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return Tokenizer(backend, SpecialTokens(), source="test")


def test_outputs_are_in_order_and_say_what_was_embedded() -> None:
    embeddings, engine = make()
    outputs = embeddings.embed([[1, 2], [4]], pooling="cls", normalize=False)
    assert [output.outputs.embedding for output in outputs] == [[0.0, 1.0], [1.0, 0.0]]
    assert [output.prompt_token_ids for output in outputs] == [[1, 2], [4]]
    assert len({output.request_id for output in outputs}) == 2
    assert outputs[0].outputs.hidden_size == 2
    assert engine.asked == [PoolingParams("embed", "cls", normalize=False)] * 2


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
    [output] = make(tokenizer, SentenceSettings(lower_case=True))[0].embed(["THE DOG"], truncate_prompt_tokens=-1)
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
    embeddings, engine = make()
    with pytest.raises(InvalidRequest, match=message):
        embeddings.embed(prompts, **settings)  # type: ignore[arg-type]
    assert engine.asked == []


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
    embeddings = LLM(str(folder))
    with pytest.raises(RequestTooLarge, match="a prompt has 13 tokens, and the model takes 12"):
        embeddings.embed([[2] * 13])
    [output] = embeddings.embed([[2, 9, 3]])
    assert output.outputs.hidden_size == 48
    assert sum(x * x for x in output.outputs.embedding) == pytest.approx(1.0, abs=1e-5)
    [score] = embeddings.score([[2, 9, 3]], [[2, 9, 3]])
    assert score.outputs.score == pytest.approx(1.0, abs=1e-5)
    embeddings.close()
    embeddings.close()


def test_a_classifier_whose_head_quire_lacks_is_refused(tmp_path: Path) -> None:
    make_encoder("nomic_bert", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["NomicBertForSequenceClassification"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"\(NomicBertForSequenceClassification\) whose head quire does not have"):
        LLM(str(tmp_path))


def test_probabilities_of_labels_and_raw_scores() -> None:
    embeddings, _ = make(labels=("no", "yes", "maybe"))
    [output] = embeddings.classify([[1, 2]])
    weights = [math.exp(2), 1.0, 1.0]
    assert output.outputs.probs == pytest.approx([weight / sum(weights) for weight in weights])
    assert (output.outputs.num_classes, output.prompt_token_ids) == (3, [1, 2])
    assert embeddings.classify([[1, 2]], use_activation=False)[0].outputs.probs == [2.0, 0.0, 0.0]
    assert embeddings.encode([[1, 2]], pooling_task="reward")[0].outputs.data == [2.0, 0.0, 0.0]
    assert embeddings.encode([[1, 2]])[0].outputs.data == pytest.approx(output.outputs.probs)


def test_a_cross_encoder_reads_both_texts_at_once() -> None:
    embeddings, engine = make(bert_pairs(), labels=("relevance",))
    [output] = embeddings.score("the dog", "the")
    assert output.prompt_token_ids[0] == 2
    assert output.prompt_token_ids.count(3) == 2
    assert list(engine.asked[0].types) == [0] * (len(output.prompt_token_ids) - 2) + [1, 1]
    length = len(output.prompt_token_ids)
    assert output.outputs.score == pytest.approx(1 / (1 + math.exp(-length)))
    assert embeddings.score("the dog", "the", use_activation=False)[0].outputs.score == length
    plain, _ = make(bert_pairs(), SentenceSettings(plain_scores=True), labels=("relevance",))
    assert plain.score("the dog", "the")[0].outputs.score == length
    assert len(embeddings.score("the dog", ["the", "dog"])) == 2


def test_long_pairs_are_refused_or_cut() -> None:
    embeddings, _ = make(bert_pairs(), labels=("relevance",))
    with pytest.raises(RequestTooLarge, match="and the model takes 8"):
        embeddings.score("the " * 9, "dog")
    [output] = embeddings.score("the " * 9, "the", truncate_prompt_tokens=6)
    assert len(output.prompt_token_ids) == 6
    with pytest.raises(InvalidRequest, match="adds 3 tokens to every pair"):
        embeddings.score("the " * 9, "the", truncate_prompt_tokens=2)


def test_vectors_of_tokens_and_of_texts() -> None:
    embeddings, _ = make()
    [tokens] = embeddings.encode([[4, 5]], normalize=False)
    assert tokens.outputs.data == [[4.0, 0.0], [5.0, 0.0]]
    assert embeddings.encode([[4, 5]], pooling_task="embed")[0].outputs.data == [1.0, 0.0]


@pytest.mark.parametrize(
    ("labels", "ask", "message"),
    [
        ((), lambda model: model.classify([[1]]), "is no classifier and has no labels to classify texts by"),
        ((), lambda model: model.encode([[1]], pooling_task="reward"), "no labels to reward texts by"),
        ((), lambda model: model.score([[1]], [[2]], use_activation=False), "its scores are cosines"),
        ((), lambda model: model.encode([[1]], pooling_task="rank"), "pooling_task is 'rank', but it must be one of"),
        ((), lambda model: model.encode([[1]], use_activation=True), "use_activation is given, and token_embed"),
        ((), lambda model: model.encode([[1]], pooling="cls"), "pooling is given, and token_embed takes no notice"),
        (("a",), lambda model: model.embed([[1]]), "is a classifier, whose hidden states are no embeddings"),
        (("a",), lambda model: model.encode([[1]], pooling_task="token_embed"), "is a classifier"),
        (("a",), lambda model: model.score([[1]], ["b"]), "token ids were given; give texts"),
        (("a", "b"), lambda model: model.score("a", "b"), "has 2 labels, and a score is the number of a single one"),
        (("a", "b"), lambda model: model.encode([[1]], pooling_task="score"), "has 2 labels"),
    ],
)
def test_what_a_model_cannot_do_is_refused(
    labels: tuple[str, ...], ask: Callable[[Embeddings], object], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        ask(make(bert_pairs(), labels=labels)[0])


def test_prompts_of_the_model_go_before_texts() -> None:
    tokenizer = bert_pairs()
    settings = SentenceSettings(prompts={"query": "the ", "document": ""}, default_prompt="query")
    embeddings, _ = make(tokenizer, settings)
    assert embeddings.embed(["dog"])[0].prompt_token_ids == tokenizer.encode("the dog")
    assert embeddings.embed(["dog"], prompt_name="document")[0].prompt_token_ids == tokenizer.encode("dog")
    assert embeddings.embed([[5]])[0].prompt_token_ids == [5]
    with pytest.raises(InvalidRequest, match="prompt_name is 'x'; it must be one of query, document"):
        embeddings.embed(["dog"], prompt_name="x")
    with pytest.raises(InvalidRequest, match="with token ids"):
        embeddings.embed([[5]], prompt_name="query")
    with pytest.raises(InvalidRequest, match="the model has no prompts"):
        make(tokenizer)[0].embed(["dog"], prompt_name="query")
