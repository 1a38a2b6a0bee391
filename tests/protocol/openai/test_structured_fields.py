"""What bodies say about the language of their answers."""

import json
from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.core.structured import MAX_GRAMMAR_LENGTH, StructuredOutput
from quire.protocol.openai.body import read_chat_body, read_completion_body

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG = {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<a>"]}
NESTED_TAG = {"type": "structural_tag", "format": {"type": "any_text"}}
CHAT = {"messages": [{"role": "user", "content": "x"}]}


def asked(**fields: Any) -> StructuredOutput | None:
    found = read_chat_body({**CHAT, **fields}).params.structured
    assert read_completion_body({"prompt": "x", **fields}).params.structured == found
    return found


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, None),
        ({"response_format": None, "structured_outputs": None, "guided_json": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            {"json": SCHEMA, "strict": False},
        ),
        ({"response_format": {"type": "json_schema", "json_schema": {"strict": True}}}, {"json": {}}),
        ({"response_format": TAG}, {"structural_tag": json.dumps(TAG)}),
        ({"response_format": NESTED_TAG}, {"structural_tag": json.dumps(NESTED_TAG)}),
        ({"structured_outputs": {}}, None),
        ({"structured_outputs": {"json": SCHEMA}}, {"json": SCHEMA}),
        ({"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}}, {"json": SCHEMA}),
        ({"structured_outputs": {"json_object": True}}, {"json_object": True}),
        ({"structured_outputs": {"structural_tag": json.dumps(TAG)}}, {"structural_tag": json.dumps(TAG)}),
        ({"structured_outputs": {"choice": ["a"]}}, {"choice": ["a"]}),
        ({"guided_json": SCHEMA}, {"json": SCHEMA}),
        ({"guided_regex": "a+"}, {"regex": "a+"}),
        ({"guided_choice": ["a", "b"]}, {"choice": ["a", "b"]}),
        ({"guided_grammar": "start: /a/"}, {"grammar": "start: /a/"}),
        ({"guided_regex": "a", "response_format": {"type": "text"}}, {"regex": "a"}),
    ],
    ids=str,
)
def test_every_way_to_ask(fields: dict[str, Any], wanted: dict[str, Any] | None) -> None:
    assert asked(**fields) == (None if wanted is None else StructuredOutput.of(wanted))
    names = [name for name, value in fields.items() if value not in (None, {}, {"type": "text"})]
    assert read_chat_body({**CHAT, **fields}).structured_field == (names[0] if names else "tools")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "more": 1}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": [1]}}}, "response_format"),
        ({"response_format": {"type": "json_object", "json_schema": {}}}, "response_format"),
        ({"response_format": {"type": "structural_tag", "structures": []}}, "response_format"),
        ({"response_format": TAG | {"json_schema": {}}}, "response_format"),
        ({"response_format": {"type": "structural_tag", "format": "any_text"}}, "response_format"),
        ({"response_format": {"type": "json_object", "format": {}}}, "response_format"),
        ({"structured_outputs": {"whitespace_pattern": " *"}}, "structured_outputs"),
        ({"structured_outputs": {"disable_any_whitespace": False, "json": SCHEMA}}, "structured_outputs"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        ({"guided_json": True}, "guided_json"),
        ({"guided_json": SCHEMA, "response_format": {"type": "json_object"}}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a", 5]}, "guided_choice"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_regex": "x" * (MAX_GRAMMAR_LENGTH + 1)}, "guided_regex"),
        ({"guided_json": {"a": ["x" * 1000] * 2000}}, "guided_json"),
        ({"guided_json": {"const": 1 << 70}}, "guided_json"),
        ({"guided_whitespace_pattern": "x"}, "guided_whitespace_pattern"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        asked(**fields)
    assert (caught.value.field or "").split(".")[0] == field
    assert len(str(caught.value)) < 400


def test_a_schema_may_be_nested_but_not_without_end() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"items": schema}
    assert asked(guided_json=schema) is not None
    for _ in range(100):
        schema = {"items": schema}
    with pytest.raises(InvalidRequest, match="nested"):
        asked(guided_json=schema)
