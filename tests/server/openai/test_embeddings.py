"""Embeddings over HTTP, as numbers and as the openai client wants them."""

import base64
import math
import struct
from typing import Any

import pytest

from tests.server.openai.conftest import Ask
from tests.server.openai.fake_serving import FakeServing

PATH = "/v1/embeddings"


def test_vectors_in_order(ask: Ask, serving: FakeServing) -> None:
    body = ask(PATH, input=["Hello there", [5, 6]], model="tiny")
    assert (body["object"], body["model"]) == ("list", "tiny")
    assert [entry["index"] for entry in body["data"]] == [0, 1]
    assert {entry["object"] for entry in body["data"]} == {"embedding"}
    assert body["data"][1]["embedding"] == pytest.approx([math.cos(2), math.sin(2), 0])
    used = sum(map(len, serving.embedded))
    assert body["usage"] == {"prompt_tokens": used, "total_tokens": used}
    assert serving.poolings == [(None, True)]


def test_base64_holds_the_same_numbers(ask: Ask) -> None:
    plain = ask(PATH, input="Hello")["data"][0]["embedding"]
    packed = ask(PATH, input="Hello", encoding_format="base64")["data"][0]["embedding"]
    assert struct.unpack("<3f", base64.b64decode(packed)) == pytest.approx(plain, rel=1e-6)


def test_what_is_asked_of_the_model(ask: Ask, serving: FakeServing) -> None:
    ask(PATH, input="Hello there you", truncate_prompt_tokens=2, pooling="last", normalize=False, dimensions=3)
    ask(PATH, input="x y " * 100, truncate_prompt_tokens=-1, add_special_tokens=False)
    assert [len(prompt) for prompt in serving.embedded] == [2, serving.max_model_len]
    assert serving.poolings[0] == ("last", False)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": "x y " * 100}, "input"),
        ({"input": [10_000_000]}, "input"),
        ({"input": "x", "dimensions": 2}, "dimensions"),
        ({"input": "x", "truncate_prompt_tokens": 65}, "truncate_prompt_tokens"),
        ({"input": "x", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "x", "embed_dtype": "int8"}, "embed_dtype"),
    ],
)
def test_refusals(ask: Ask, serving: FakeServing, given: dict[str, Any], param: str) -> None:
    assert ask(PATH, 400, **given)["error"]["param"] == param
    assert not serving.embedded


def test_unknown_models(ask: Ask) -> None:
    ask(PATH, 404, input="x", model="gpt")
