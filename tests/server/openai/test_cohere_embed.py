"""Cohere's /v2/embed over HTTP: the vectors of /v1/embeddings, in the forms that its clients ask for."""

import base64
import struct

import pytest
from starlette.testclient import TestClient

from tests.server.openai.conftest import Ask
from tests.server.openai.fake_serving import FakeServing

TEXTS = ["Hello", "Hello there you"]


def test_vectors_are_those_of_openais_route(ask: Ask) -> None:
    found = ask("/v2/embed", texts=TEXTS, model="tiny", embedding_types=["float", "base64"])
    wanted = [row["embedding"] for row in ask("/v1/embeddings", input=TEXTS, model="tiny")["data"]]
    assert found["embeddings"]["float"] == wanted
    sizes = [len(row) for row in wanted]
    told = zip(found["embeddings"]["base64"], sizes, strict=True)
    assert [list(struct.unpack(f"<{size}f", base64.b64decode(text))) for text, size in told] == [
        pytest.approx(row) for row in wanted
    ]
    assert (found["texts"], found["response_type"]) == (TEXTS, "embeddings_by_type")
    assert found["meta"]["api_version"] == {"version": "2"}


def test_floats_unless_told_and_tokens_are_counted(ask: Ask, serving: FakeServing) -> None:
    found = ask("/v2/embed", texts=TEXTS)
    assert list(found["embeddings"]) == ["float"]
    used = sum(map(len, serving.embedded))
    assert found["meta"]["billed_units"] == {"input_tokens": used, "image_tokens": 0}


def test_texts_are_cut_unless_that_is_refused(ask: Ask, serving: FakeServing) -> None:
    ask("/v2/embed", texts=["x y " * 100])
    ask("/v2/embed", texts=["x y " * 100], max_tokens=5)
    assert [len(prompt) for prompt in serving.embedded] == [serving.max_model_len, 5]
    ask("/v2/embed", 400, texts=["x y " * 100], truncate="NONE")


def test_what_texts_are_for_chooses_the_models_prompt(client: TestClient, serving: FakeServing) -> None:
    serving.prompts = {"query": "query: ", "own": "own: "}
    for kind, before in (("search_query", "query: "), ("own", "own: ")):
        assert client.post("/v2/embed", json={"texts": ["Hi"], "input_type": kind}).status_code == 200
        assert serving.embedded[-1] == serving.tokenizer.encode(before + "Hi")
    # a prompt that the model has is honoured, even one without words
    serving.prompts["document"] = ""
    for kind in ("document", "search_document"):
        honoured = client.post("/v2/embed", json={"texts": ["Hi"], "input_type": kind})
        assert (honoured.status_code, honoured.headers.get("x-quire-ignored")) == (200, None)
        assert serving.embedded[-1] == serving.tokenizer.encode("Hi")
    without = client.post("/v2/embed", json={"texts": ["Hi"], "input_type": "clustering"})
    assert without.headers["x-quire-ignored"] == "input_type"
    refused = client.post("/v2/embed", json={"texts": ["Hi"], "input_type": "poetry"})
    assert refused.status_code == 400
    assert "Unsupported input_type 'poetry'" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": "Hi"}, "texts"),
        ({"texts": ["Hi"], "images": ["data:"]}, "images"),
        ({"texts": ["Hi"], "embedding_types": ["int8"]}, "embedding_types"),
        # the fake model's vectors have no multiple of eight
        ({"texts": ["Hi"], "embedding_types": ["binary"]}, "embedding_types"),
        ({"texts": ["Hi"], "output_dimension": 7}, "output_dimension"),
        ({"texts": ["Hi"], "truncate": "START"}, "truncate"),
        ({"texts": ["Hi"], "truncate": "NONE", "max_tokens": 3}, "max_tokens"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(ask: Ask, body: dict[str, object], field: str) -> None:
    assert ask("/v2/embed", 400, **body)["error"]["param"] == field
