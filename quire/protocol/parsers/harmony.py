"""OpenAI's harmony: an answer is messages on channels; thinking is `analysis`, calls are addressed to `functions.`."""

import re

from quire.protocol.parsers.call_format import CallFormat
from quire.protocol.parsers.json_calls import arguments
from quire.protocol.parsers.json_text import LONGEST_NAME
from quire.protocol.parsers.parts import Kind, Malformed, Part, Reader, captured
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Tools
from quire.sampling.grammar.lark import Lark

_START, _CHANNEL, _MESSAGE, _CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
_END, _RETURN, _CALL = "<|end|>", "<|return|>", "<|call|>"
_RECIPIENT = re.compile(r"\bto=(\S+)")
_FUNCTIONS = "functions."
THINKING = (f"{_CHANNEL}analysis{_MESSAGE}", _END)
"""What a thinking part begins and ends with."""


class Harmony(CallFormat):
    opens = (_CHANNEL, _START)
    inside = (_MESSAGE, _CONSTRAIN, _END, _RETURN, _CALL)
    always = True
    between = ""

    def recognizes(self, template: str) -> bool:
        return _CHANNEL in template and _MESSAGE in template

    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        header = ""
        if opening == _START:
            header, found = yield from captured(source.until((_CHANNEL, _MESSAGE), "content"))
            if found is None:
                raise Malformed
            opening = found
        channel = ""
        if opening == _CHANNEL:
            about, found = yield from captured(source.until((_MESSAGE,), "content"))
            if found is None:
                raise Malformed
            channel = about.split(_CONSTRAIN)[0].split(maxsplit=1)[0] if about.split() else ""
            header += " " + about.replace(_CONSTRAIN, " ")
        kind = yield from self._begin(channel, header, tools)
        rest = source.until((_END, _RETURN, _CALL), kind)
        if kind == "arguments":
            yield from source.space()
            yield from arguments(source)
            yield from captured(rest)  # nothing else may stand there
        else:
            yield from rest

    def _begin(self, channel: str, header: str, tools: Tools) -> Reader[Kind]:
        recipient = _RECIPIENT.search(header)
        name = recipient[1].removeprefix(_FUNCTIONS) if recipient and recipient[1].startswith(_FUNCTIONS) else ""
        if 0 < len(name) <= LONGEST_NAME and tools.are_offered:
            yield Part("call", name)
            return "arguments"
        # what is said to a tool that nobody offered is no answer
        return "reasoning" if channel == "analysis" or (recipient and not name) else "content"

    def section(self, lark: Lark, tools: Tools) -> str:
        calls = (
            f'{lark.quoted(f"commentary to={_FUNCTIONS}{each.name} ")} {lark.marker(_CONSTRAIN)} "json" '
            f"{lark.marker(_MESSAGE)} {lark.json(tools.schema_of(each))} {lark.marker(_CALL)}"
            for each in tools.callable()
        )
        return f"{self._begun(lark)} {lark.either(calls)}"

    def grammar(self, lark: Lark, tools: Tools) -> str:
        call = lark.rule("call", self.section(lark, tools))
        if tools.must_be_called:
            return call
        said = lark.either(('"final"', '"commentary"', '"analysis"'))
        message = lark.rule("message", f"{self._begun(lark)} {said} {lark.marker(_MESSAGE)} {lark.text()}")
        return f"( {message} {lark.marker(_END)} )* ( {call} | {message} )"

    def answer(self, lark: Lark, rule: str) -> str:
        return f'{self._begun(lark)} "final" {lark.marker(_MESSAGE)} {rule}'

    def _begun(self, lark: Lark) -> str:
        return f'( {lark.marker(_START)} "assistant" )? {lark.marker(_CHANNEL)}'
