"""From what a client asked for to a grammar as llguidance reads it. Runs where it can be killed before it runs here."""

import json

from llguidance import LLMatcher, LLTokenizer

from quire.core.structured import StructuredOutput
from quire.sampling.grammar.context_free import as_lark
from quire.sampling.grammar.errors import GrammarError
from quire.sampling.grammar.json_layout import JSON_LAYOUT
from quire.sampling.grammar.schema_rewriting import rewritten
from quire.sampling.grammar.structural_tag import structural_tag_grammar


def grammar_of(structured: StructuredOutput, tokenizer: LLTokenizer) -> str:
    """The grammar as llguidance's own text; raises GrammarError where not even that can be made of it."""
    if structured.json is not None:
        return json_grammar(structured.json)
    if structured.json_object:
        return json_grammar('{"type": "object"}')
    if structured.regex is not None:
        return LLMatcher.grammar_from_regex(structured.regex)
    if structured.choice is not None:
        choices = " | ".join(json.dumps(text) for text in structured.choice)
        return LLMatcher.grammar_from_lark(f"start: {choices}")
    if structured.grammar is not None:
        return LLMatcher.grammar_from_lark(as_lark(structured.grammar))
    assert structured.structural_tag is not None
    return structural_tag_grammar(structured.structural_tag, tokenizer)


def exact_schema(schema: str) -> str:
    """The same schema in keywords that the library knows; raises ValueError for what is no JSON."""
    found = json.loads(schema)
    return "{}" if found is True else json.dumps(rewritten(found))


def json_grammar(schema: str) -> str:
    """The grammar of a schema's JSON texts."""
    try:
        return LLMatcher.grammar_from_json_schema(exact_schema(schema), overrides=JSON_LAYOUT)  # type: ignore[arg-type]
    except ValueError as error:
        raise GrammarError(f"the JSON schema is no JSON object that can be read: {error}") from None
