"""A schema in other words admits the same values, and is one that a grammar can hold."""

import json
from itertools import product
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.core.structured import StructuredOutput
from quire.sampling.grammar.compile import check_first_mask, compile_matcher
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.schema_rewriting import rewritten
from tests.sampling.grammar.vocabulary import tokenizer, tokens_of

ABC = {"type": "object", "properties": {name: {"enum": [1, 2]} for name in "abc"}, "additionalProperties": False}
KIND = {**ABC, "properties": {**ABC["properties"], "k": {"enum": ["x", "y", 1]}, "on": {"type": "boolean"}}}
IF_X = {"properties": {"k": {"const": "x"}}}
CAT = {"type": "object", "properties": {"k": {"const": "x"}, "a": {"enum": [1]}}, "required": ["k"]}
DOG = {"type": "object", "properties": {"k": {"enum": ["y", 1]}}, "required": ["k"]}
SCHEMAS: dict[str, Any] = {
    "dependencies": {**ABC, "dependencies": {"a": ["b"], "b": {"required": ["c"]}}},
    "dependentRequired": {**ABC, "dependentRequired": {"a": ["b", "c"], "c": []}},
    "dependentSchemas": {**ABC, "dependentSchemas": {"a": {"properties": {"b": {"const": 2}}}}},
    "if": {**KIND, "if": IF_X, "then": {"required": ["a"]}, "else": {"required": ["b"]}},
    "if required": {**KIND, "if": {**IF_X, "required": ["k"]}, "then": {"required": ["a"]}},
    "if two": {
        **KIND,
        "if": {"properties": {"k": {"enum": ["x", "y"]}, "on": {"const": True}}, "required": ["on"]},
        "then": {"properties": {"a": {"const": 2}}},
        "else": {"properties": {"a": {"const": 1}}},
    },
    "if present": {**ABC, "if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}},
    "if alone": {**KIND, "if": IF_X},
    "several ifs": {**KIND, "allOf": [
        {"type": "object", "properties": {"k": {"enum": ["x", "y", 1]}}, "if": IF_X, "then": {"required": ["a"]}},
        {"type": "object", "properties": {"on": {"type": "boolean"}}, "if": {"properties": {"on": {"const": True}}},
         "then": {"required": ["b"]}},
    ]},
    "not": {**ABC, "not": {"required": ["a"]}},
    "oneOf by a constant": {"oneOf": [CAT, DOG]},
    "oneOf by reference": {
        "$defs": {"Cat": CAT, "Dog": DOG},
        "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        "discriminator": {"propertyName": "k", "mapping": {"x": "#/$defs/Cat"}},
    },
    "oneOf beside anyOf": {**KIND, "oneOf": [CAT, DOG], "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "oneOf by what is required": {**ABC, "oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["b", "c"]}]},
    "oneOf by what may not be": {"oneOf": [
        {**ABC, "required": ["a"]},
        {"type": "object", "properties": {"b": {"enum": [1]}}, "additionalProperties": False},
    ]},
    "oneOf by type": {"oneOf": [{"type": ["string", "null"]}, {"type": "integer"}, {"$ref": "#/$defs/l"}],
                      "$defs": {"l": {"type": "array", "items": {"type": "null"}}}},
}  # fmt: skip
VALUES = [
    *(None, 1, "x", [], [None], True),
    *(
        {name: value for name, value in zip("kabc", values, strict=True) if value is not None} | on
        for values in product((None, "x", "y", 1), (None, 1, 2), (None, 1, 2), (None, 1))
        for on in ({}, {"on": True}, {"on": False})
    ),
]


def is_valid(schema: Any, value: Any) -> bool:
    # dependencies is a keyword of older drafts, and what depends on what has two newer names
    names = [jsonschema.Draft7Validator, jsonschema.Draft202012Validator]
    return all(validator(schema).is_valid(value) for validator in names)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_same_values_satisfy_it(name: str) -> None:
    schema = SCHEMAS[name]
    other = rewritten(schema)
    assert other != schema
    assert [value for value in VALUES if is_valid(schema, value) != is_valid(other, value)] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_grammar_holds_it(name: str) -> None:
    schema = SCHEMAS[name]
    matcher = compile_matcher(StructuredOutput(json=json.dumps(schema)), tokenizer())
    check_first_mask(StructuredOutput(json=json.dumps(schema)), matcher)
    for value in VALUES[:150]:
        order = {key: value[key] for key in (*"abc", "k", "on") if key in value} if isinstance(value, dict) else value
        one = matcher.deep_copy()
        # a grammar writes properties in the order of the schema, so a text that it refuses may still be valid
        if one.try_consume_tokens(tokens := tokens_of(json.dumps(order))) == len(tokens) and one.is_accepting():
            assert is_valid(schema, value)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "/oneOf"),
        ({"oneOf": [CAT, {**DOG, "properties": {"k": {"enum": ["x", "y"]}}}]}, "/oneOf"),
        ({"oneOf": [{**CAT, "required": []}, {**DOG, "required": []}]}, "/oneOf"),
        ({**ABC, "if": {"properties": {"a": {"minimum": 2}}}, "then": {"required": ["b"]}}, "/if"),
        ({"type": "object", "if": IF_X, "then": {"required": ["b"]}}, "/if"),
        ({**ABC, "dependentRequired": {f"p{i}": ["a"] for i in range(7)}}, "/dependentRequired"),
        ({**ABC, "not": {"required": ["a", "b"]}}, "/not"),
        ({"type": "array", "uniqueItems": True}, "/uniqueItems"),
    ],
)
def test_what_has_no_other_words_is_refused(schema: Any, pointer: str) -> None:
    with pytest.raises(GrammarError) as caught:
        compile_matcher(StructuredOutput(json=json.dumps(schema)), tokenizer())
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("keyword", ["$defs", "definitions"])
def test_a_reference_that_lost_its_hash_is_to_the_schema_itself(keyword: str) -> None:
    lost = {"type": "array", "items": {"$ref": f"/{keyword}/one"}, keyword: {"one": {"type": "boolean"}}}
    assert rewritten(lost)["items"] == {"$ref": f"#/{keyword}/one"}
    compile_matcher(StructuredOutput(json=json.dumps(lost)), tokenizer())
    for other in ({**lost, "$id": "https://example.com/list"}, {**lost, keyword: {"two": True}}, {**lost, keyword: 1}):
        assert rewritten(other)["items"] == lost["items"]


PIECES = st.sampled_from(
    [{"required": ["a"]}, {"required": ["b"]}, {"properties": {"k": {"const": "x"}}}, CAT, DOG, IF_X]
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_made_up_schemas(data: st.DataObject) -> None:
    schema = dict(KIND)
    for keyword in ("if", "then", "else", "not"):
        if data.draw(st.booleans()):
            schema[keyword] = data.draw(PIECES)
    if data.draw(st.booleans()):
        schema["oneOf"] = data.draw(st.lists(PIECES, min_size=1, max_size=3))
    if data.draw(st.booleans()):
        schema["dependentRequired"] = {data.draw(st.sampled_from("abk")): [data.draw(st.sampled_from("abk"))]}
    validator, other = jsonschema.Draft202012Validator(schema), jsonschema.Draft202012Validator(rewritten(schema))
    assert [value for value in VALUES if validator.is_valid(value) != other.is_valid(value)] == []
