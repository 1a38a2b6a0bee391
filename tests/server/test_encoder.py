"""An encoder behind the server: it embeds and scores, and says so where it is asked to generate."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.engine.llm import LLM
from tests.parity.tiny_encoders import make_encoder
from tests.server.live import LiveServer, running_server
from tests.text.vocabularies import wordpiece


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "tiny-bert"
    folder.mkdir()
    make_encoder("bert", folder)
    wordpiece().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--served-model-name", "bert,other")
    with running_server(tmp_path_factory.mktemp("served"), *options, model=str(folder)) as server:
        yield server


def test_vectors_are_those_of_the_offline_embedder(server, folder):
    prompts = [[2, 9, 3], [2, 7, 8, 3]]
    with server.client() as client:
        answer = client.post("/v1/embeddings", json={"model": "other", "input": prompts})
    assert answer.status_code == 200, answer.text
    embedder = LLM(str(folder))
    for found, expected in zip(answer.json()["data"], embedder.embed(prompts), strict=True):
        assert found["embedding"] == pytest.approx(expected.outputs.embedding, abs=1e-6)
    embedder.close()


def test_scores(server):
    with server.client() as client:
        answer = client.post("/v1/score", json={"text_1": "a", "text_2": ["a", "b c"]}).json()
    assert answer["data"][0]["score"] == pytest.approx(1.0, abs=1e-5)
    assert answer["data"][1]["score"] < 1.0


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_reranking(server, path):
    with server.client() as client:
        answer = client.post(path, json={"query": "a", "documents": ["b c", {"text": "a"}], "top_n": 1}).json()
    [best] = answer["results"]
    assert (best["index"], best["document"]) == (1, {"text": "a"})
    assert best["relevance_score"] == pytest.approx(1.0, abs=1e-5)


def test_vectors_of_tokens_are_those_of_the_offline_embedder(server, folder):
    with server.client() as client:
        answer = client.post("/pooling", json={"input": [[2, 9, 3], [2, 7]], "normalize": False})
    assert answer.status_code == 200, answer.text
    embedder = LLM(str(folder))
    expected = embedder.encode([[2, 9, 3], [2, 7]], pooling_task="token_embed", normalize=False)
    for found, output in zip(answer.json()["data"], expected, strict=True):
        assert len(found["data"]) == len(output.prompt_token_ids)
        for row, other in zip(found["data"], output.outputs.data, strict=True):
            assert row == pytest.approx(other, abs=1e-5)
    embedder.close()


def test_what_is_no_classifier_says_so(server):
    with server.client() as client:
        answer = client.post("/classify", json={"input": "a"})
    assert answer.status_code == 400
    assert "is no classifier" in answer.json()["error"]["message"]


def test_generating_is_refused(server):
    with server.client() as client:
        answer = client.post("/v1/completions", json={"prompt": "hello"})
    assert answer.status_code == 400
    assert "embeds texts and generates none" in answer.json()["error"]["message"]


def test_it_goes_by_its_names(server):
    assert [model["id"] for model in server.get("/v1/models")["data"]] == ["bert", "other"]
