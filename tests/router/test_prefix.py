"""Names of texts: alike where bodies begin alike, and the same in every process."""

import json
from typing import Any

import pytest

from quire.router.prefix import CHUNK_BYTES, Prefix, prefix_of

SYSTEM = {"role": "system", "content": "You know everything about foxes. " * 40}


def chat(*messages: dict[str, Any], **more: Any) -> Prefix:
    return prefix_of(json.dumps({"model": "m", "messages": list(messages), **more}).encode())


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_conversation_keeps_its_home_and_its_names() -> None:
    first = chat(SYSTEM, user("Hello"))
    second = chat(SYSTEM, user("Hello"), {"role": "assistant", "content": "Hi. " * 100}, user("More"))
    assert second.home == first.home
    assert second.names[: len(first.names)] == first.names
    assert len(second.names) > len(first.names) >= 4
    assert first.home_tokens == pytest.approx(first.tokens, abs=2)


def test_conversations_share_names_but_no_home() -> None:
    one, other = chat(SYSTEM, user("Hello")), chat(SYSTEM, user("Good day"))
    assert one.home != other.home
    assert one.names[:4] == other.names[:4]


def test_questions_about_one_document_share_a_home() -> None:
    document = "All about foxes. " * 400
    one, other = chat(user(document + "What?")), chat(user(document + "Why, then?"))
    assert one.home == other.home


def test_what_else_a_body_says_makes_no_difference() -> None:
    assert chat(user("x" * 600), temperature=1).names == chat(user("x" * 600), seed=4, stream=True).names


@pytest.mark.parametrize("more", [{"model": "adapter"}, {"cache_salt": "mine"}])
def test_models_and_salts_have_names_of_their_own(more: dict[str, Any]) -> None:
    one, other = chat(user("x" * 600)), chat(user("x" * 600), **more)
    assert not set(one.names) & set(other.names)
    assert one.home != other.home


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "a fox " * 200},
        {"prompt": [1, 2, 3] * 200},
        {"input": "a fox " * 200},
        {"input": [user("a fox " * 200)]},
        {"system": "a fox " * 200, "messages": [user("hello")]},
        {"instructions": "a fox " * 200, "input": "hello"},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a fox " * 200}]}]},
        {"query": "fox", "documents": ["a fox " * 200]},
    ],
)
def test_every_api_has_a_prefix(body: dict[str, Any]) -> None:
    found = prefix_of(json.dumps(body).encode())
    assert len(found.names) >= 2
    assert found.tokens > CHUNK_BYTES // 4
    assert found.home


@pytest.mark.parametrize(
    "body", [b"", b"no JSON", b"[1]", b"\xff\xfe", b'{"messages": 5, "prompt": null}', b"[" * 5000]
)
def test_anything_else_has_none(body: bytes) -> None:
    assert prefix_of(body).names == []


def test_what_is_referred_to() -> None:
    assert prefix_of(b'{"previous_response_id": "resp_1", "input": "x"}').previous == "resp_1"
    assert prefix_of(b'{"input_file_id": "file-1"}').previous == "file-1"
    assert prefix_of(b'{"previous_response_id": 5}').previous is None
    assert prefix_of(b'{"conversation": "conv_1"}').conversation == "conv_1"
    assert prefix_of(b'{"conversation": {"id": "conv_1"}}').conversation == "conv_1"
    assert prefix_of(b'{"conversation": {"id": [1]}}').conversation is None


def test_names_are_the_same_in_every_process() -> None:
    assert prefix_of(json.dumps({"model": "m", "prompt": "a" * 300}).encode()).names == [NAME]


NAME = 6995810989226376823
