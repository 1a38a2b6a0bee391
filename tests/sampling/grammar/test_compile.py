"""Every language a client may ask for, by the texts it admits; and what is wrong with those that cannot be."""

import json

import pytest

from quire.core.structured import StructuredOutput
from quire.sampling.grammar.compile import check_first_mask, compile_matcher
from quire.sampling.grammar.errors import GrammarError
from tests.sampling.grammar.vocabulary import tokenizer, tokens_of

TAG = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<f=a>", "schema": {"enum": [1]}, "end": "</f>"},
        {"begin": "<f=b>", "schema": True, "end": "</f>"},
        {"begin": "<call>x", "schema": {"type": "null"}, "end": "</s>!"},
    ],
    "triggers": ["<f=", "<call>"],
}


def admits(structured: StructuredOutput, text: str) -> bool:
    matcher = compile_matcher(structured, tokenizer())
    return matcher.consume_tokens(tokens_of(text)) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("structured", "good", "bad"),
    [
        (StructuredOutput(regex=r"\d{2}|x"), ["42", "x"], ["4", "42x", ""]),
        (StructuredOutput(regex=r"^ab$"), ["ab"], ["^ab$"]),
        (StructuredOutput(choice=("a\n\"b'", "é")), ["a\n\"b'", "é"], ["a", ""]),
        (StructuredOutput(json_object=True), ['{"a": [1, {}]}', "{}"], ["[]", "1", "{"]),
        (StructuredOutput(json="true"), ["1", "[]", '"x"'], ["x"]),
        (StructuredOutput(json='{"type": "integer", "minimum": 3}'), ["3", "41"], ["2", "3.5"]),
        # one layout: what json.dumps writes, and no other
        (StructuredOutput(json='{"type": "object"}'), ['{"a": 1, "b": 2}'], ['{"a":1}', '{ "a": 1}']),
        (StructuredOutput(grammar='start: N ("+" N)*\nN: /[0-9]+/'), ["1+22"], ["1+", "+"]),
        (StructuredOutput(grammar='?start: "a" start "b" | "c"'), ["c", "aacbb"], ["ac"]),
        (StructuredOutput(grammar='root ::= "a" num | "b"\nnum ::= [0-9]+'), ["a12", "b"], ["a", "12"]),
        (StructuredOutput(grammar='start: "x ::= y"'), ["x ::= y"], ["x"]),
        (
            StructuredOutput(structural_tag=json.dumps(TAG)),
            ["free text", "so <f=a>1</f> and <f=b>{}</f> on", "<call>xnull</s>! more", ""],
            ["<f=a>2</f>", "<f=c>", "<call>y", "<f=a>1"],
        ),
    ],
    ids=str,
)
def test_texts_of_a_language(structured: StructuredOutput, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not admits(structured, text)] == []
    assert [text for text in bad if admits(structured, text)] == []


@pytest.mark.parametrize(
    ("structured", "said"),
    [
        (StructuredOutput(regex="(a"), "unclosed group"),
        (StructuredOutput(regex=r"(a)\1"), "backreferences are not supported"),
        (StructuredOutput(regex="(?=a)b"), "look-around"),
        (StructuredOutput(grammar="start: x"), "unknown name"),
        (StructuredOutput(grammar="root ::= (("), "cannot be read"),
        (StructuredOutput(grammar="start: start"), "no text satisfies"),
        (StructuredOutput(json="{"), "no JSON object"),
        (StructuredOutput(json="[1]"), "no JSON object"),
        (StructuredOutput(json="false"), "no JSON object"),
        (StructuredOutput(json='{"enum": []}'), "Unsatisfiable"),
        (StructuredOutput(json='{"properties": {"a/b": {"uniqueItems": true}}}'), "at /properties/a~1b/uniqueItems "),
        (StructuredOutput(json='{"x-guidance": {"lenient": true}, "uniqueItems": true}'), "at /uniqueItems "),
        (StructuredOutput(structural_tag="[]"), "must be an object"),
        (StructuredOutput(structural_tag="{"), "cannot be read"),
        (StructuredOutput(structural_tag=json.dumps(TAG | {"triggers": ["<g"]})), "/structures/0/begin"),
        (StructuredOutput(structural_tag=json.dumps(TAG | {"triggers": ["<f=", "<f=", "<call>"]})), "comes twice"),
        (StructuredOutput(structural_tag=json.dumps(TAG | {"triggers": ["<f=", "<call>", "<f=a"]})), "of its own"),
        (StructuredOutput(structural_tag=json.dumps(TAG | {"structures": []})), "/structures is 'a list of 0'"),
        (StructuredOutput(structural_tag=json.dumps(TAG | {"type": "tag"})), "'tag'"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(structured: StructuredOutput, said: str) -> None:
    with pytest.raises(GrammarError) as caught:
        check_first_mask(structured, compile_matcher(structured, tokenizer()))
    assert said in str(caught.value)
    assert caught.value.field == "structured"
    assert len(str(caught.value)) < 800
