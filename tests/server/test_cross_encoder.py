"""A cross-encoder and a classifier behind the server: clients read the numbers that `transformers` computes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.parity import tiny_reranker
from tests.parity.tiny_classifiers import TinyClassifier
from tests.parity.tiny_reranker import TinyReranker
from tests.server.live import LiveServer, running_server

QUERY = "the quick dog"
TEXTS = ["a", "the dog jumps over the lazy dog", "fox and dog", "the quick brown fox"]
Served = tuple[LiveServer, TinyClassifier]


def served(name: str, folder: Path) -> Iterator[Served]:
    model = folder / name
    model.mkdir()
    oracle = TinyClassifier(name, model)
    with running_server(folder, "--dtype", "float32", model=str(model)) as server:
        yield server, oracle


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    yield from served("bert", tmp_path_factory.mktemp("served"))


def close(expected: list[float]) -> object:
    return pytest.approx(expected, abs=2e-5, rel=1e-4)


def scores_of(oracle: TinyClassifier) -> list[float]:
    """The sigmoid of the only label, as sentence-transformers' CrossEncoder gives it."""
    return torch.sigmoid(torch.tensor([oracle.raw(QUERY, text)[0] for text in TEXTS])).tolist()


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_reranking(reranker: Served, path: str) -> None:
    server, oracle = reranker
    with server.client() as client:
        answer = client.post(path, json={"query": QUERY, "documents": TEXTS})
    assert answer.status_code == 200, answer.text
    expected = scores_of(oracle)
    order = sorted(range(len(TEXTS)), key=lambda place: -expected[place])
    assert len(set(expected)) == len(TEXTS)  # otherwise any order would do
    results = answer.json()["results"]
    assert [result["index"] for result in results] == order
    assert [result["relevance_score"] for result in results] == close([expected[place] for place in order])


def test_scores(reranker: Served) -> None:
    server, oracle = reranker
    body = {"text_1": QUERY, "text_2": TEXTS}
    with server.client() as client:
        answers = [client.post("/v1/score", json=body | more) for more in ({}, {"use_activation": False})]
    assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
    found, plain = ([one["score"] for one in answer.json()["data"]] for answer in answers)
    assert found == close(scores_of(oracle))
    assert plain == close([oracle.raw(QUERY, text)[0] for text in TEXTS])


def test_classifying(reranker: Served) -> None:
    server, oracle = reranker
    with server.client() as client:
        answer = client.post("/classify", json={"input": TEXTS})
    assert answer.status_code == 200, answer.text
    for one, text in zip(answer.json()["data"], TEXTS, strict=True):
        assert one["label"] == "LABEL_0"
        assert one["probs"] == close(torch.sigmoid(torch.tensor(oracle.raw(text))).tolist())


def test_embedding_and_generating_are_refused(reranker: Served) -> None:
    server, _ = reranker
    with server.client() as client:
        embedded = client.post("/v1/embeddings", json={"input": "a"})
        generated = client.post("/v1/completions", json={"prompt": "a"})
    assert (embedded.status_code, generated.status_code) == (400, 400)
    assert "is a classifier" in embedded.json()["error"]["message"]


def test_a_decoder_that_scores(tmp_path: Path) -> None:
    """Qwen3-Reranker, in the form of a sequence classifier."""
    for server, oracle in served("qwen3-reranker", tmp_path):
        with server.client() as client:
            answer = client.post("/v1/rerank", json={"query": QUERY, "documents": TEXTS})
        assert answer.status_code == 200, answer.text
        by_document = {result["index"]: result["relevance_score"] for result in answer.json()["results"]}
        assert [by_document[place] for place in range(len(TEXTS))] == close(scores_of(oracle))


def test_qwen3_reranker_as_published(tmp_path: Path) -> None:
    model = tmp_path / "published"
    model.mkdir()
    oracle = TinyReranker(model)
    query, texts, instruction = tiny_reranker.QUERY, tiny_reranker.TEXTS, "Judge which text has an animal in it"
    with running_server(tmp_path, "--dtype", "float32", model=str(model)) as server, server.client() as client:
        ranked = client.post("/rerank", json={"query": query, "documents": texts})
        scored = client.post("/score", json={"text_1": query, "text_2": texts, "instruction": instruction})
        bare = {"text_1": "a", "text_2": "b", "add_special_tokens": False}
        refused = client.post("/score", json=bare | {"instruction": instruction})
        alone = client.post("/score", json=bare)
    assert [answer.status_code for answer in (ranked, scored, refused, alone)] == [200, 200, 400, 200], ranked.text
    by_document = {result["index"]: result["relevance_score"] for result in ranked.json()["results"]}
    expected = [oracle.score(oracle.prompt(query, text)) for text in texts]
    assert [by_document[place] for place in range(len(texts))] == close(expected)
    instructed = [oracle.score(oracle.prompt(query, text, instruction)) for text in texts]
    assert [one["score"] for one in scored.json()["data"]] == close(instructed)
    assert alone.json()["data"][0]["score"] == close(oracle.score(oracle.tokenizer.encode("ab").ids))
    assert refused.json()["error"]["param"] == "instruction"
