"""The place of the keyword that a message is about."""

import json

import pytest

from quire.core.structured import StructuredOutput
from quire.sampling.grammar.compile import compile_matcher
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.schema_pointer import pointer_of
from tests.sampling.grammar.vocabulary import tokenizer


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"not": {}}, "/not"),
        ({"properties": {"not": {"items": {"not": {}}}}}, "/properties/not/items/not"),
        ({"anyOf": [{}, {"prefixItems": [{"contains": {}}]}]}, "/anyOf/1/prefixItems/0/contains"),
        ({"type": "object", "propertyNames": {}}, "/propertyNames"),
        ({"$defs": {"~x": {"format": "nope", "type": "string"}}, "$ref": "#/$defs/~0x"}, "/$defs/~0x/format"),
        ({"additionalProperties": {"type": ["string", "strin"]}, "type": "object"}, "/additionalProperties/type"),
        ({"items": {"type": "string", "pattern": "(a"}}, "/items/pattern"),
        ({"type": "object", "patternProperties": {"(?=z)": {}}}, "/patternProperties"),
        ({"items": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}, "/items/oneOf"),
        ({"items": {"$ref": "#/$defs/missing"}}, "/items/$ref"),
        ({"type": "object", "properties": {"a": {}}, "maxProperties": 1}, "/maxProperties"),
        ({"items": {"$ref": "http://example.org/x"}}, "/items/$ref"),
        ({"default": {"not": 1}, "properties": {"a": {"if": True}}}, "/properties/a/if"),
    ],
    ids=str,
)
def test_the_keyword_that_cannot_be_honoured_is_named(schema: dict[str, object], pointer: str) -> None:
    with pytest.raises(GrammarError) as caught:
        compile_matcher(StructuredOutput.of(schema), tokenizer())
    assert f"the JSON schema at {pointer} cannot be used" in str(caught.value)


def test_messages_without_a_keyword_have_no_place() -> None:
    assert pointer_of("{}", "something else") is None
    assert pointer_of("{", 'Unimplemented keys: ["not"]') is None
    assert pointer_of("{}", 'Unimplemented keys: ["not"]') is None
    deep = json.dumps({"a": 1})
    for _ in range(500):
        deep = '{"items": ' + deep + "}"
    assert pointer_of(deep, 'Unimplemented keys: ["not"]') is None
