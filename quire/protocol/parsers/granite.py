"""Granite 3: `<|tool_call|>` and a JSON list of calls."""

from quire.protocol.parsers.call_format import CallFormat, json_list
from quire.protocol.parsers.json_calls import BRACKETS, json_calls
from quire.protocol.parsers.parts import Reader
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Tools
from quire.sampling.grammar.lark import Lark


class Granite(CallFormat):
    opens = ("<|tool_call|>", "<tool_call>")
    ends = BRACKETS
    between = ""

    def recognizes(self, template: str) -> bool:
        return "<|tool_call|>" in template

    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        yield from json_calls(source)

    def section(self, lark: Lark, tools: Tools) -> str:
        return json_list(lark, tools)
