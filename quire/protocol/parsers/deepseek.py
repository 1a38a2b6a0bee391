"""DeepSeek: special tokens around every call; V3 and R1 fence the arguments in Markdown, V3.1 does not."""

from dataclasses import dataclass, replace
from typing import Self

from quire.protocol.parsers.call_format import CallFormat
from quire.protocol.parsers.json_calls import arguments
from quire.protocol.parsers.json_text import LONGEST_NAME
from quire.protocol.parsers.parts import Malformed, Part, Reader, captured
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Tools
from quire.sampling.grammar.lark import Lark

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_NAME = "<｜tool▁sep｜>"
_FENCE = "```json\n"


@dataclass(frozen=True)
class DeepSeek(CallFormat):
    fenced: bool = True
    """How a grammar writes arguments; both ways are read."""

    opens = (_CALLS,)
    ends = (_CALLS_END, _CALL_END)
    inside = (_CALL, _NAME)
    between = ""

    def recognizes(self, template: str) -> bool:
        return _CALLS in template

    def tuned(self, template: str) -> Self:
        return replace(self, fenced="```json" in template)

    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        while True:
            yield from source.space()
            if not (yield from source.accept(_CALL)):
                break
            yield from self._call(source)

    def section(self, lark: Lark, tools: Tools) -> str:
        call, sep, end = (lark.marker(each) for each in (_CALL, _NAME, _CALL_END))
        around = ('"\\n```json\\n"', '"\\n```"') if self.fenced else ("", "")
        kind = '"function"' if self.fenced else ""
        calls = []
        for each in tools.callable():
            name, schema = lark.quoted(each.name), lark.json(tools.schema_of(each))
            said = f"{kind} {sep} {name} {around[0]}" if self.fenced else f"{name} {sep}"
            calls.append(f"{call} {said} {schema} {around[1]} {end}")
        one = lark.rule("call", lark.either(calls))
        more = f'( "\\n"? {one} )*' if tools.may_be_several else ""
        return f"{one} {more} {lark.marker(_CALLS_END)}"

    def _call(self, source: Source) -> Reader[None]:
        name, found = yield from captured(source.until((_NAME, _CALL_END), "content"))
        name = name.strip()
        yield from source.space()
        if name == "function":  # V3's kind of call, whose name follows, or a function that is called so
            if not (yield from source.more()):
                raise Malformed
            if source.text[source.at] != "{":
                name = yield from source.word("_-.", LONGEST_NAME)
                if not (yield from source.more()):
                    raise Malformed
        if found != _NAME or not 0 < len(name) <= LONGEST_NAME:
            raise Malformed
        yield Part("call", name)
        yield from source.space()
        yield from source.accept(_FENCE)
        yield from source.space()
        yield from arguments(source)
        yield from source.space()
        yield from source.accept("```")
        yield from source.space()
        yield from source.accept(_CALL_END)
