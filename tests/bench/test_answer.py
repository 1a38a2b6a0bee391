"""Streams of both endpoints, with moments that the test makes up."""

import json
from typing import Any

import pytest

from quire.bench.answer import AnswerReader


def read(*events: tuple[int, Any], status: int = 200) -> AnswerReader:
    reader = AnswerReader()
    reader.begin(status, 0)
    for moment, event in events:
        text = event if isinstance(event, str) else json.dumps(event)
        reader.body(f"data: {text}\n\n".encode(), moment)
    return reader


def completion(text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish_reason}]}


def chat(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 7, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}},
}


def test_a_completion() -> None:
    reader = read(
        (10, completion("a b")), (30, completion(" c")), (31, completion("", "length")), (32, USAGE), (33, "[DONE]")
    )
    assert reader.pieces == [10, 30]
    assert (reader.text, reader.finish_reason, reader.ended) == ("a b c", "length", 33)
    assert reader.usage is not None
    assert (reader.usage.prompt_tokens, reader.usage.completion_tokens, reader.usage.cached_tokens) == (7, 9, 4)
    assert reader.problem() is None


def test_half_a_character_is_a_token_and_the_last_text_counts() -> None:
    reader = read((1, completion("")), (2, completion("é", "stop")), (3, "[DONE]"))
    assert reader.pieces == [1, 2]


def test_a_chat_begins_with_its_first_word_and_not_with_its_role() -> None:
    reader = read(
        (1, chat(role="assistant", content="")),
        (5, chat(reasoning_content="hm")),
        (6, chat(content="hi")),
        (7, chat(tool_calls=[{"index": 0}])),
        (8, chat("stop")),
        (9, "[DONE]"),
    )
    assert reader.pieces == [5, 6, 7]
    assert reader.text == "hmhi"


def test_an_answer_of_nothing_but_its_end_has_one_piece() -> None:
    assert read((4, completion("", "stop")), (5, "[DONE]")).pieces == [4]


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        (read((1, '{"error": "busy"}'), status=503), "http 503"),
        (read((1, completion("a")), (2, {"error": {"message": "lost"}})), "error in the stream"),
        (read((1, "no json")), "error in the stream"),
        (read((1, completion("a"))), "cut off"),
        (read((1, "[DONE]")), "empty"),
    ],
)
def test_what_went_wrong_has_a_kind(reader: AnswerReader, kind: str) -> None:
    problem = reader.problem()
    assert problem is not None
    assert problem[0] == kind
    assert problem[1]


@pytest.mark.parametrize("body", ['{"choices": [{"text": "hi", "finish_reason": "stop"}]}', "<html>a proxy</html>"])
def test_an_answer_that_is_no_stream_is_said_to_be(body: str) -> None:
    reader = AnswerReader()
    reader.begin(200, 0)
    for letter in body:  # cut anywhere
        reader.body(letter.encode(), 5)
    problem = reader.problem()
    assert problem is not None
    assert problem[0] == "no stream"
    assert body in problem[1]


def test_a_stream_that_ends_before_its_first_event_is_cut_off() -> None:
    reader = AnswerReader()
    reader.begin(200, 0)
    reader.body(b': wait\n\ndata: {"choi', 5)
    assert reader.problem() == ("cut off", "the answer ended without a finish reason or [DONE]")
