"""Qwen3-Coder: calls in tags, `<function=name><parameter=key>value</parameter></function>`, between `<tool_call>`s.

A value is plain text; what it is in JSON, the tool's schema says.
"""

import json

from quire.protocol.parsers.call_format import CallFormat
from quire.protocol.parsers.flat_arguments import Flat, flat_parameters
from quire.protocol.parsers.json_calls import loads
from quire.protocol.parsers.json_text import LONGEST_NAME
from quire.protocol.parsers.parts import Malformed, Part, Reader, captured, changed
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Function, Tools
from quire.sampling.grammar.lark import Lark

_END, _FUNCTION_END, _VALUE_END = "</tool_call>", "</function>", "</parameter>"
_WORDS = "_-."


class Qwen3Coder(CallFormat):
    opens = ("<tool_call>",)
    ends = (_END,)

    def recognizes(self, template: str) -> bool:
        return "<tool_call>" in template and "<function=" in template

    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        yield from source.space()
        yield from source.expect("<function=")
        name = yield from source.word(_WORDS, LONGEST_NAME)
        yield from source.expect(">")
        if not name:
            raise Malformed
        yield Part("call", name)
        yield from self._parameters(source, tools.get(name) or Function(name))

    def section(self, lark: Lark, tools: Tools) -> str:
        return lark.either(self._call(lark, each) for each in tools.callable()) + f' "\\n" {lark.marker(_END)}'

    def _parameters(self, source: Source, function: Function) -> Reader[None]:
        before = "{"
        while True:
            yield from source.space()
            if not (yield from source.accept("<parameter=")):
                break
            key = yield from source.word(_WORDS, LONGEST_NAME)
            yield from source.expect(">")
            yield from source.accept("\n")
            yield Part("arguments", f"{before}{json.dumps(key, ensure_ascii=False)}: ")
            before = ", "
            yield from _value(source, is_text=function.property(key).get("type") == "string")
        yield from source.expect(_FUNCTION_END, _END)
        yield Part("arguments", "}" if before == ", " else "{}")

    def _call(self, lark: Lark, function: Function) -> str:
        head = lark.quoted(f"\n<function={function.name}>\n")
        parameters = [self._parameter(lark, flat, function.pattern) for flat in flat_parameters(function)]
        return f"{head} {' '.join(parameters)} {lark.quoted(_FUNCTION_END)}"

    def _parameter(self, lark: Lark, flat: Flat, pattern: str | None) -> str:
        """`pattern` is that of a function of free text."""
        start, end = lark.quoted(f"<parameter={flat.name}>\n"), lark.quoted(f"\n{_VALUE_END}\n")
        if flat.schema.get("type") != "string":
            rule = f"{start} {lark.json(flat.schema)} {end}"
        elif isinstance(flat.schema.get("enum"), list):
            rule = f"{start} {lark.either(lark.quoted(str(each)) for each in flat.schema['enum'])} {end}"
        elif pattern is not None:
            text = lark.text_like(pattern, "\n", _VALUE_END)
            rule = f'{start} {text} "\\n"'
        else:
            rule = f'{start} {lark.text_to(_VALUE_END)} "\\n"'
        return rule if flat.required else f"( {rule} )?"


def _value(source: Source, *, is_text: bool) -> Reader[None]:
    """A value in JSON: text as it comes, anything else when all of it is there."""
    said = source.until(("\n" + _VALUE_END, _VALUE_END), "arguments")
    if is_text:
        yield Part("arguments", '"')
        end = yield from changed(said, lambda part: Part("arguments", json.dumps(part.text, ensure_ascii=False)[1:-1]))
        if end is not None:
            yield Part("arguments", '"')
    else:
        text, end = yield from captured(said)
        yield Part("arguments", json.dumps(loads(text), ensure_ascii=False) if end is not None else text)
    if end is None:
        raise Malformed
