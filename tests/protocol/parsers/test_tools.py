"""What a grammar holds the arguments of a call to."""

from typing import Any

import pytest

from quire.protocol.parsers.tools import Function, Tools

CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}


def held_to(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    function = Function("f", None, schema, **more)
    return dict(Tools((function,), "auto" if more else "required").schema_of(function))


@pytest.mark.parametrize("more", [{}, {"strict": True}], ids=["required", "strict"])
def test_a_call_has_the_arguments_that_are_listed_and_no_others(more: dict[str, Any]) -> None:
    """Haystack's and LangChain's schemas leave objects open, for functions that take no other arguments."""
    assert held_to(CITY, **more) == {**CITY, "additionalProperties": False}


@pytest.mark.parametrize(
    "more",
    [
        {"additionalProperties": True},
        {"additionalProperties": {"type": "string"}},
        {"patternProperties": {"^x": {}}},
        {"anyOf": [{"required": ["a"], "properties": {"a": {}}}, {}]},
        {"allOf": [{"properties": {"b": {"type": "integer"}}}]},
        {"$ref": "#/$defs/other"},
        {"required": ["city", "unlisted"]},
    ],
)
def test_a_schema_that_may_mean_other_arguments_stays_as_it_is(more: dict[str, Any]) -> None:
    assert held_to(CITY | more) == CITY | more


def test_a_schema_without_properties_takes_any() -> None:
    assert held_to({"description": "anything"}) == {"type": "object", "description": "anything"}


def test_a_call_that_nothing_binds_is_any_object() -> None:
    function = Function("f", None, CITY)
    assert Tools((function,)).schema_of(function) == {"type": "object"}
