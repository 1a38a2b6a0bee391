"""Hermes and Qwen: `<tool_call>`, a JSON object, `</tool_call>`, once for each call."""

import re

from quire.protocol.parsers.call_format import CallFormat, json_section
from quire.protocol.parsers.json_calls import BRACKETS, json_calls
from quire.protocol.parsers.parts import Reader
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Tools
from quire.sampling.grammar.lark import Lark

_END = "</tool_call>"
_AS_JSON = re.compile(r"""arguments\\?["']\s*:""")


class Hermes(CallFormat):
    opens = ("<tool_call>",)
    ends = (_END, *BRACKETS)

    def recognizes(self, template: str) -> bool:
        return "<tool_call>" in template and _AS_JSON.search(template) is not None and "<arg_key>" not in template

    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        yield from json_calls(source)

    def section(self, lark: Lark, tools: Tools) -> str:
        return f'"\\n" {json_section(lark, tools)} "\\n" {lark.marker(_END)}'
