"""Parsers for quire: calls as `[[call]]{"name": ..., "arguments": {...}}[[/call]]`, and thinking on a scratchpad."""

from quire.protocol.parsers.call_format import CallFormat, json_section
from quire.protocol.parsers.json_calls import json_calls
from quire.protocol.parsers.parts import Reader
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.thinking import Thinking
from quire.protocol.parsers.tools import Tools
from quire.sampling.grammar.lark import Lark

QUIRE_PLUGIN_API = 1
_END = "[[/call]]"


class DoubleBrackets(CallFormat):
    """One section for each call. A format has no state: what was read of an answer is its reader's."""

    opens = ("[[call]]",)
    ends = (_END,)

    def recognizes(self, template: str) -> bool:
        return self.opens[0] in template

    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        yield from json_calls(source)

    def section(self, lark: Lark, tools: Tools) -> str:
        """What a grammar lets the model write where calls must be made, or must be right."""
        return f"{json_section(lark, tools)} {lark.marker(_END)}"


CALLS = DoubleBrackets()
THINKING = Thinking("<scratchpad>", "</scratchpad>")
