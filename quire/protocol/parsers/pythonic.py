"""Pythonic: a list of calls in Python's syntax, `[weather(city="Paris"), now()]`, as Llama 4 and LFM2 write it.

Nothing but its shape tells a bare list from content, so the first name must be that of a tool.
"""

import json

from quire.protocol.parsers.call_format import CallFormat
from quire.protocol.parsers.flat_arguments import Flat, flat_parameters
from quire.protocol.parsers.json_text import LONGEST_NAME
from quire.protocol.parsers.parts import Malformed, Part, Reader
from quire.protocol.parsers.python_literal import literal
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Function, Tools
from quire.sampling.grammar.lark import Lark


class Pythonic(CallFormat):
    opens = ("<|tool_call_start|>", "<|python_start|>")
    bare = ("[",)
    ends = ("<|tool_call_end|>", "<|python_end|>")
    between = ""

    def recognizes(self, template: str) -> bool:
        return "<|tool_list_start|>" in template or "<|tool_call_start|>" in template or "func_name1(" in template

    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        if opening not in self.bare:
            yield from source.space()
            yield from source.expect("[")
        while True:
            yield from source.space()
            yield from self._call(source, tools)
            yield from source.space()
            if (yield from source.expect(",", "]")) == "]":
                break

    def section(self, lark: Lark, tools: Tools) -> str:
        call = lark.rule("call", lark.either(_function(lark, tools, each) for each in tools.callable()))
        return f'"[" {call} ( ", " {call} )* "]"' if tools.may_be_several else f'"[" {call} "]"'

    def free(self, lark: Lark, section: str) -> str:
        return f"{section} | /[^\\[\\s](.|\\n)*/"

    def _opening(self, lark: Lark) -> str:
        return ""

    def _call(self, source: Source, tools: Tools) -> Reader[None]:
        name = yield from source.word("_.", LONGEST_NAME)
        yield from source.expect("(")
        if name not in tools:
            raise Malformed
        yield Part("call", name)
        before = "{"
        while True:
            yield from source.space()
            if (yield from source.accept(")")):
                break
            key = yield from source.word("_", LONGEST_NAME)
            yield from source.space()
            yield from source.expect("=")
            yield from source.space()
            value = yield from literal(source)
            yield from source.space()
            end = yield from source.expect(",", ")")
            yield Part("arguments", f"{before}{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
            before = ", "
            if end == ")":
                break
        yield Part("arguments", "}" if before == ", " else "{}")


def _function(lark: Lark, tools: Tools, function: Function) -> str:
    arguments = _listed(lark, flat_parameters(function))
    return f'{lark.quoted(function.name + "(")} {arguments} ")"'


def _listed(lark: Lark, flat: list[Flat]) -> str:
    """Arguments with commas between them, optional ones perhaps left out."""
    if not flat:
        return ""
    first, *others = flat
    rest = "".join(
        f' ", " {_argument(lark, each)}' if each.required else f' ( ", " {_argument(lark, each)} )?' for each in others
    )
    whole = f"{_argument(lark, first)}{rest}"
    if first.required:
        return whole
    return f"( {whole} | {_listed(lark, others)} )" if others else f"( {whole} )?"


def _argument(lark: Lark, flat: Flat) -> str:
    start = lark.quoted(f"{flat.name}=")
    if flat.schema.get("type") == "boolean":
        return f'{start} ( "True" | "False" )'
    return f"{start} {lark.json(flat.schema)}"
