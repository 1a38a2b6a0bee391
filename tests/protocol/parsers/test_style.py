"""What a model's style makes of a request: the grammar, the thinking part, and the special tokens its parsers see."""

import json
import random

import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken

from quire.config.parsers import ParserConfig, ToolParser
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.core.structured import StructuredOutput
from quire.protocol.parsers.choose import CALL_FORMATS
from quire.protocol.parsers.parts import Part
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.style import AnswerStyle
from quire.protocol.parsers.tool_schemas import check_schemas
from quire.protocol.parsers.tools import Choice, Function, Tools
from quire.sampling.grammar.language import grammar_of
from quire.text.special_tokens import SpecialTokens
from quire.text.tokenizer import Tokenizer
from tests.protocol.parsers.spoken import TOOLS
from tests.text import vocabularies

HERMES = '<tool_call>{"name": ..., "arguments": ...}</tool_call>'
THINKING = "<think></think>"
PARAMS = SamplingParams(max_tokens=9)
WISH = ReasoningOptions()


def style(template: str = HERMES, *special: str, tool_parser: ToolParser = "auto") -> AnswerStyle:
    backend = vocabularies.byte_level()
    backend.add_special_tokens(list(special))
    tokenizer = Tokenizer(backend, SpecialTokens(), source="a test")
    return AnswerStyle(template, tokenizer, ParserConfig(tool_parser=tool_parser))


def test_a_plain_request_stays_as_it_is() -> None:
    reading, params = style().prepare("Hi", PARAMS, Tools(), WISH)
    assert params is PARAMS
    assert reading.is_plain
    assert reading.parser(0).push("a <tool_call> b ") == [Part("content", "a <tool_call> b ")]


def test_markers_that_are_special_tokens_are_shown_and_hidden_again() -> None:
    chosen = style(HERMES + THINKING, "<tool_call>", "<think>")
    ids = {chosen._tokenizer.token_to_id(marker) for marker in ("<tool_call>", "<think>")}
    reading, params = chosen.prepare("Hi", PARAMS, TOOLS, WISH)
    assert set(params.shown_tokens) == ids
    assert reading.message(0, "a<tool_call>b<think>").content == "ab"
    # without tools only the thinking has markers
    assert len(chosen.prepare("Hi", PARAMS, Tools(), WISH)[1].shown_tokens) == 1
    _, unskipped = chosen.prepare("Hi", SamplingParams(skip_special_tokens=False), TOOLS, WISH)
    assert unskipped.shown_tokens == ()


@pytest.mark.parametrize("name", list(CALL_FORMATS))
@pytest.mark.parametrize("special", [True, False], ids=["special", "added"])
def test_what_a_mask_allows_can_be_said_whatever_kind_of_token_a_marker_is(name: ToolParser, special: bool) -> None:
    """Qwen's <tool_call> is an added token that is not special."""
    form = CALL_FORMATS[name]
    backend = vocabularies.byte_level()
    add = backend.add_special_tokens if special else backend.add_tokens
    add([AddedToken(marker, normalized=False) for marker in form.markers if len(marker) > 1])
    tokenizer = Tokenizer(backend, SpecialTokens(), source="a test")
    chosen = AnswerStyle("", tokenizer, ParserConfig(tool_parser=name))
    _, params = chosen.prepare("Hi", PARAMS, Tools(TOOLS.functions, "required"), WISH)
    assert params.structured is not None
    for_grammars = LLTokenizer(backend.to_str())
    grammar = grammar_of(params.structured, for_grammars)
    for seed in range(5):
        drawn, matcher = random.Random(seed), LLMatcher(for_grammars, grammar)
        for _ in range(60):
            if matcher.is_stopped():
                break
            bits = int.from_bytes(matcher.compute_bitmask(), "little")
            allowed = [token for token in range(backend.get_vocab_size()) if bits >> token & 1]
            assert matcher.consume_token(drawn.choice(allowed)), matcher.get_error()


@pytest.mark.parametrize("tools", [Tools(TOOLS.functions, "required"), Tools((Function("f", strict=True),))])
def test_calls_that_are_bound_have_a_grammar(tools: Tools) -> None:
    _, params = style().prepare("Hi", PARAMS, tools, WISH)
    assert params.structured is not None
    assert params.structured.grammar is not None
    assert params.reasoning is None


def test_calls_that_are_free_have_none() -> None:
    for tools in (TOOLS, Tools(TOOLS.functions, "none")):
        assert style().prepare("Hi", PARAMS, tools, WISH)[1].structured is None


def test_an_answer_in_json_or_calls() -> None:
    bound = SamplingParams(structured=StructuredOutput(json='{"type": "integer"}'))
    _, params = style().prepare("Hi", bound, TOOLS, WISH)
    assert params.structured is not None
    assert '"integer"' in str(params.structured.grammar)
    assert style().prepare("Hi", bound, Tools(), WISH)[1] is bound
    with pytest.raises(InvalidRequest, match="no JSON"):
        style().prepare("Hi", SamplingParams(structured=StructuredOutput(regex="a")), TOOLS, WISH)


def test_a_call_that_must_be_made_leaves_no_content_for_a_language_to_bind() -> None:
    forced = Tools(TOOLS.functions, "required")
    for structured in (StructuredOutput(json='{"type": "integer"}'), StructuredOutput(regex="a")):
        _, params = style().prepare("Hi", SamplingParams(structured=structured), forced, WISH)
        assert params.structured == style().prepare("Hi", PARAMS, forced, WISH)[1].structured


def test_harmony_answers_in_json_on_its_final_channel() -> None:
    bound = SamplingParams(structured=StructuredOutput(json_object=True))
    _, params = style("<|channel|><|message|>", "<|channel|>").prepare("Hi", bound, Tools(), WISH)
    assert '"final"' in str(params.structured)


def test_thinking_is_free_of_grammars_and_has_a_budget() -> None:
    chosen = style(HERMES + THINKING)
    encode = chosen._tokenizer.encode
    assert chosen.prepare("Hi", PARAMS, Tools(), WISH)[1].reasoning is None
    part = chosen.prepare("Hi<think>\n", PARAMS, Tools(), ReasoningOptions(budget=7))[1].reasoning
    assert part is not None
    assert (part.budget, part.is_open) == (7, True)
    assert list(part.end) == encode("</think>", add_special_tokens=False)
    bound = SamplingParams(structured=StructuredOutput(json_object=True))
    part = chosen.prepare("Hi", bound, Tools(), WISH)[1].reasoning
    assert part is not None
    assert not part.is_open
    assert chosen.prepare("Hi", PARAMS, Tools(TOOLS.functions, "required"), WISH)[1].reasoning is not None
    # the template has closed it: the grammar binds from the first token
    over = chosen.prepare("Hi<think>\n\n</think>\n\n", bound, Tools(), WISH)[1]
    assert over.structured == bound.structured
    assert over.reasoning is None


@pytest.mark.parametrize(
    ("function", "choice", "checked"),
    [
        (Function("f", None, {"maxProperties": 2}), "required", '{"type": "object", "maxProperties": 2}'),
        (Function("f", None, {"maxProperties": 2}, strict=True), "auto", '{"type": "object", "maxProperties": 2}'),
        (Function("f", None, {"maxProperties": 2}), "auto", None),
    ],
)
def test_schemas_are_checked_where_they_bind(function: Function, choice: Choice, checked: str | None) -> None:
    seen: list[str | None] = []
    check_schemas(Tools((function,), choice), lambda structured: seen.append(structured.json))
    assert seen == ([] if checked is None else [checked])


def test_a_schema_that_cannot_be_held_to_is_refused_with_its_tool() -> None:
    for schema in ({"type": "string"}, {"type": ["object", "null"]}, {}):
        with pytest.raises(InvalidRequest, match="the tool 'f'") as refused:
            check_schemas(Tools((Function("f", None, schema, strict=True),)), _refuse)
        assert refused.value.field == "tools"


def _refuse(structured: StructuredOutput) -> None:
    raise InvalidRequest("no", field="structured")


def test_what_the_model_cannot_do_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="--tool-parser and one of harmony, deepseek") as refused:
        style("").prepare("Hi", PARAMS, TOOLS, WISH)
    assert refused.value.field == "tools"
    style("", tool_parser="llama3").prepare("Hi", PARAMS, TOOLS, WISH)
    with pytest.raises(InvalidRequest, match="does not think"):
        style("").prepare("Hi", PARAMS, Tools(), ReasoningOptions(budget=1))


@pytest.mark.parametrize(
    ("said", "prompt", "count"),
    [
        ("<think>one two</think>three", "", "one two"),
        ("one two</think>three", "<think>", "one two"),
        ("one two", "<think>", "one two"),
        ("one two</think>", "", ""),
        ("", "<think>", ""),
    ],
)
def test_tokens_of_thinking_are_counted(said: str, prompt: str, count: str) -> None:
    chosen = style(THINKING, "<think>", "</think>")
    reading, _ = chosen.prepare(prompt, PARAMS, Tools(), WISH)
    encode = chosen._tokenizer.encode
    assert reading.thinking_tokens(encode(said)) == len(encode(count) if count else [])


@pytest.mark.parametrize(
    ("said", "prompt", "count"),
    [
        (["<th", "ink>", "one", " two.</", "think>\n\n", "three"], "", 2),
        (["one", "</think>\n", "<think>", "three"], "<think>", 1),
        (["one", " two"], "<think>", 2),
        (["one", "</think>"], "", 0),
        ([], "<think>", 0),
    ],
)
def test_tokens_of_thinking_are_counted_by_the_text_where_a_mark_is_no_token(
    said: list[str], prompt: str, count: int
) -> None:
    backend = vocabularies.byte_level()
    backend.add_tokens([AddedToken(token, normalized=False) for token in said if "<think>" not in token])
    chosen = AnswerStyle(THINKING, Tokenizer(backend, SpecialTokens(), source="a test"), ParserConfig())
    encode = chosen._tokenizer.encode
    reading, _ = chosen.prepare(prompt, PARAMS, Tools(), WISH)
    tokens = [encode(each, add_special_tokens=False) for each in said]
    assert all(len(each) == 1 for each, text in zip(tokens, said, strict=True) if "<think>" not in text)
    assert reading.thinking_tokens([token for each in tokens for token in each]) == count


def test_thinking_that_is_not_wanted_is_left_out() -> None:
    reading, _ = style(THINKING).prepare("Hi", PARAMS, Tools(), ReasoningOptions(is_shown=False))
    message = reading.message(0, "<think>a</think>b")
    assert (message.reasoning, message.content) == ("", "b")


def test_ids_are_the_same_however_often_an_answer_is_read() -> None:
    said = f"<tool_call>{json.dumps({'name': 'now'})}</tool_call>" * 2
    reading, other = (style().prepare("Hi", PARAMS, TOOLS, WISH)[0] for _ in range(2))
    ids = [call.identity for index in (0, 1) for call in reading.message(index, said).calls]
    assert len(set(ids)) == 4
    assert [call.identity for call in reading.message(0, said).calls] == ids[:2]
    assert other.message(0, said).calls[0].identity not in ids
    assert all(identity.startswith("call_") for identity in ids)
    short, _ = style("[TOOL_CALLS]").prepare("Hi", PARAMS, TOOLS, WISH)
    [call] = short.message(0, "[TOOL_CALLS]now[ARGS]{}").calls
    assert len(call.identity) == 9
    assert call.identity.isalnum()
