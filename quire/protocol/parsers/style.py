"""AnswerStyle: how one model writes its answers, and what that means for a request and for what is read of it."""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from quire.config.parsers import ParserConfig
from quire.core.errors import InvalidRequest
from quire.core.reasoning import ReasoningPart
from quire.core.sampling_params import SamplingParams
from quire.core.structured import StructuredOutput
from quire.protocol.parsers.choose import CALL_FORMATS, choose_calls, choose_thinking
from quire.protocol.parsers.reading import Reading
from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Tools
from quire.sampling.grammar.lark import Lark, looks_like_a_tag
from quire.text.tokenizer import Tokenizer


class AnswerStyle:
    """The parsers of one model, with its vocabulary's spelling of their markers."""

    def __init__(self, template: str, tokenizer: Tokenizer, parsers: ParserConfig) -> None:
        """`template` is the text of the model's chat template."""
        self._tokenizer = tokenizer
        self.form = choose_calls(parsers.tool_parser, template)
        self.thinking = choose_thinking(parsers.reasoning_parser, template)
        calls = () if self.form is None else self.form.markers
        thoughts = () if self.thinking is None else (self.thinking.start, self.thinking.end)
        found = {marker: self._special(marker) for marker in (*calls, *thoughts)}
        self._specials = {marker: token for marker, token in found.items() if token is not None}

    def prepare(
        self, prompt: str, params: SamplingParams, tools: Tools, reasoning_options: ReasoningOptions
    ) -> tuple[Reading, SamplingParams]:
        """How answers to a rendered prompt are read, and how they are to be sampled for that."""
        self._check(tools, reasoning_options)
        calls = self.form if self.form is not None and (self.form.always or tools.are_offered) else None
        part = self._part(prompt, reasoning_options)
        markers = () if calls is None else calls.markers
        thoughts = () if self.thinking is None else (self.thinking.start, self.thinking.end)
        hidden = self._specials.keys() & {*markers, *thoughts} if params.skip_special_tokens else set()
        reading = Reading(
            self.thinking, part, calls, tools, frozenset(hidden), reasoning_options.is_shown, self._spelled(part)
        )
        changes: dict[str, Any] = {}
        if hidden:
            changes["shown_tokens"] = tuple(sorted(self._specials[marker] for marker in hidden))
        grammar = self._grammar(params.structured, tools)
        if grammar is not None:
            changes["structured"] = StructuredOutput(grammar=grammar)
        if part is not None and (
            reasoning_options.budget is not None or grammar is not None or params.structured is not None
        ):
            changes["reasoning"] = part
        return reading, msgspec.structs.replace(params, **changes) if changes else params

    def _check(self, tools: Tools, reasoning_options: ReasoningOptions) -> None:
        if tools.are_offered and self.form is None:
            raise InvalidRequest(
                "tools are given, and how the model writes calls is not known from its chat template; start quire with "
                f"--tool-parser and one of {', '.join(CALL_FORMATS)}, or set tool_choice to none",
                field="tools",
            )
        if reasoning_options.budget is not None and self.thinking is None:
            reasoning_options.note_budget()

    def _part(self, prompt: str, reasoning_options: ReasoningOptions) -> ReasoningPart | None:
        if self.thinking is None or self.thinking.is_over(prompt):
            return None
        start, end = self._tokens(self.thinking.start), self._tokens(self.thinking.end)
        return ReasoningPart(
            start=start, end=end, is_open=self.thinking.is_open(prompt), budget=reasoning_options.budget
        )

    def _spelled(self, part: ReasoningPart | None) -> Callable[[int], bytes] | None:
        return None if part is None or len(part.start) == len(part.end) == 1 else self._tokenizer.token_bytes

    def _grammar(self, structured: StructuredOutput | None, tools: Tools) -> str | None:
        """Of calls where they must be made or must be right, together with what the content must be."""
        form, lark = self.form, Lark(self._known_by_id)
        if form is None or not (
            tools.are_constrained or (structured is not None and (form.always or tools.are_offered))
        ):
            return None
        if structured is None or tools.must_be_called:  # an answer of calls has no content that could break a language
            return lark.written(form.grammar(lark, tools))
        answer = form.answer(lark, _content(lark, structured))
        if not tools.are_offered:
            return lark.written(answer)
        calls = form.grammar(lark, tools.required())
        return lark.written(f"{answer} | {calls}")

    def _special(self, text: str) -> int | None:
        """The id of a special token that is spelled like this."""
        token = self._tokenizer.token_to_id(text)
        return token if token is not None and self._tokenizer.is_special(token) else None

    def _known_by_id(self, text: str) -> int | None:
        """The id of a token that is spelled like this, if grammars know it by that alone: also one that was added
        without being special, as Qwen's <tool_call> was."""
        token = self._tokenizer.token_to_id(text)
        if token is None:
            return None
        is_tag = self._tokenizer.is_added(token) and looks_like_a_tag(text)
        return token if is_tag or self._tokenizer.is_special(token) else None

    def _tokens(self, text: str) -> tuple[int, ...]:
        token = self._tokenizer.token_to_id(text)
        return (token,) if token is not None else tuple(self._tokenizer.encode(text, add_special_tokens=False))


def _content(lark: Lark, structured: StructuredOutput) -> str:
    """The language of the content, as a rule."""
    if structured.json is not None:
        schema = json.loads(structured.json)
        # true is a schema too, and means anything
        return lark.json(schema if isinstance(schema, dict) else {})
    if structured.json_object:
        return lark.json({"type": "object"})
    raise InvalidRequest(
        "tools are given together with a language of the content that is no JSON; set tool_choice to none, or leave "
        "one of them out",
        field="tools",
    )
