"""Llama 3: the answer is a JSON object with `name` and `parameters`, perhaps behind `<|python_tag|>`.

Nothing but its shape tells such an object from an answer in JSON, so its name must be that of a tool.
"""

from quire.protocol.parsers.call_format import CallFormat, json_section
from quire.protocol.parsers.json_calls import BRACKETS, json_calls
from quire.protocol.parsers.parts import Reader
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Tools
from quire.sampling.grammar.lark import Lark


class Llama3(CallFormat):
    opens = ("<|python_tag|>",)
    bare = ("{",)
    ends = (";", *BRACKETS)
    between = "; "

    def recognizes(self, template: str) -> bool:
        shown = "<|python_tag|>" in template or '{"name": function name, "parameters"' in template
        return shown and "<function=" not in template

    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        if opening in self.bare:
            source.at -= len(opening)
        yield from json_calls(source, tools)

    def section(self, lark: Lark, tools: Tools) -> str:
        return json_section(lark, tools, "parameters")

    def free(self, lark: Lark, section: str) -> str:
        return f"{section} | /[^{{\\s](.|\\n)*/"

    def _opening(self, lark: Lark) -> str:
        return ""
