"""The document is valid OpenAPI 3.1, and says of the routes what they do."""

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
from starlette.responses import Response

from quire.protocol.openai.body import CHAT_FIELDS
from quire.server.openapi import SHARED_ERRORS, openapi_document
from quire.server.operation import Operation
from quire.text.labels import Labels
from tests.server.openai.fake_serving import OPERATIONS, FakeServing, fake_client

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def document() -> dict[str, Any]:
    return openapi_document(OPERATIONS, "1.2.3")


def schemas_of(document: dict[str, Any], path: str, method: str = "post") -> tuple[dict[str, Any], dict[str, Any]]:
    found = document["paths"][path][method]
    asked = found.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return asked, found["responses"]["200"]["content"]["application/json"]["schema"]


def test_it_is_valid(document: dict[str, Any]) -> None:
    assert [error.message for error in OPENAPI_31_VALIDATOR.iter_errors(document)] == []
    assert document["info"]["version"] == "1.2.3"
    for path in document["paths"]:
        for method in document["paths"][path]:
            for schema in schemas_of(document, path, method):
                Draft202012Validator.check_schema(schema)


def test_every_route_is_there_with_every_error(document: dict[str, Any]) -> None:
    described = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    assert described == [(each.method, each.path.replace(":path", "")) for each in OPERATIONS]
    for methods in document["paths"].values():
        for operation in methods.values():
            assert set(operation["responses"]) == {"200", *map(str, SHARED_ERRORS)}
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


def test_every_field_the_reader_knows_is_in_the_schema(document: dict[str, Any]) -> None:
    asked, _ = schemas_of(document, CHAT)
    assert set(asked["properties"]) == set(CHAT_FIELDS)
    assert "additionalProperties" not in asked, "what it does not name changes no answer, and is taken"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": HI}),
        (CHAT, {"messages": HI, "logprobs": True, "top_logprobs": 2, "prompt_logprobs": 1, "return_token_ids": True}),
        ("/v1/completions", {"prompt": ["a", [1, 2]], "n": 2, "service_tier": "auto"}),
        ("/v1/completions", {"prompt": "a b", "echo": True, "logprobs": 2, "prompt_logprobs": 2}),
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/embeddings", {"input": "a", "encoding_format": "base64"}),
        ("/v1/score", {"queries": "a", "documents": ["b"]}),
        ("/v1/rerank", {"query": "a", "documents": ["b", {"text": "c"}]}),
        ("/v2/rerank", {"query": "a", "documents": ["b"], "return_documents": False}),
        ("/pooling", {"input": "a"}),
        ("/v1/pooling", {"input": "a", "task": "embed", "encoding_format": "base64"}),
        ("/tokenize", {"prompt": "a", "return_token_strs": True}),
        ("/tokenize", {"messages": HI}),
        ("/detokenize", {"tokens": [1]}),
    ],
)
def test_bodies_and_answers_are_as_it_says(
    tmp_path: Path, document: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    asked, answered = schemas_of(document, path)
    Draft202012Validator(asked).validate(body)
    answer = fake_client(FakeServing(tmp_path)).post(path, json=body)
    assert answer.status_code == 200
    Draft202012Validator(answered).validate(answer.json())


def test_classes_are_as_it_says(tmp_path: Path, document: dict[str, Any]) -> None:
    serving = FakeServing(tmp_path)
    serving.labels = Labels("tiny", ("good", "bad"))
    answer = fake_client(serving).post("/classify", json={"input": ["a", "b"]})
    assert answer.status_code == 200
    Draft202012Validator(schemas_of(document, "/classify")[1]).validate(answer.json())


def test_models_are_as_it_says(tmp_path: Path, document: dict[str, Any]) -> None:
    client = fake_client(FakeServing(tmp_path))
    for path, url in (("/v1/models", "/v1/models"), ("/v1/models/{model}", "/v1/models/tiny")):
        Draft202012Validator(schemas_of(document, path, "get")[1]).validate(client.get(url).json())


def test_errors_are_as_it_says(tmp_path: Path, document: dict[str, Any]) -> None:
    answer = fake_client(FakeServing(tmp_path)).post(CHAT, json={"messages": HI, "n": 0})
    assert answer.status_code == 400
    Draft202012Validator(document["components"]["schemas"]["Error"]).validate(answer.json())


def test_other_kinds_of_operations() -> None:
    async def handler(request: object) -> Response:
        return Response()

    document = openapi_document(
        [
            Operation("POST", "/upload/{name}", "Up", handler, {"type": "object"}, body_type="multipart/form-data"),
            Operation("GET", "/upload/{name}", "Down", handler, answer_types=("text/plain",), query={"after": {}}),
            Operation("DELETE", "/upload/{number:int}", "Away", handler, answer_types=(), statuses=(204,)),
        ],
        "1",
    )
    assert [error.message for error in OPENAPI_31_VALIDATOR.iter_errors(document)] == []
    up, down = (document["paths"]["/upload/{name}"][method] for method in ("post", "get"))
    assert list(up["requestBody"]["content"]) == ["multipart/form-data"]
    assert down["responses"]["200"]["content"] == {"text/plain": {"schema": {"type": "string"}}}
    assert [(each["name"], each["in"]) for each in down["parameters"]] == [("name", "path"), ("after", "query")]
    away = document["paths"]["/upload/{number}"]["delete"]
    assert away["parameters"][0]["schema"] == {"type": "integer"}
    assert "content" not in away["responses"]["204"]
