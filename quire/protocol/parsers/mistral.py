"""Mistral: `[TOOL_CALLS]` and a JSON list of calls, or since 2025 `[TOOL_CALLS]name[ARGS]{...}` for each call."""

from typing import Self

from quire.protocol.parsers.call_format import CallFormat, json_list
from quire.protocol.parsers.json_calls import BRACKETS, arguments, json_calls
from quire.protocol.parsers.json_text import LONGEST_NAME
from quire.protocol.parsers.parts import Malformed, Part, Reader
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Tools
from quire.sampling.grammar.lark import Lark

_ARGUMENTS, _ID = "[ARGS]", "[CALL_ID]"


class Mistral(CallFormat):
    opens = ("[TOOL_CALLS]",)
    inside = (_ARGUMENTS, _ID)
    ends = BRACKETS
    between = ""
    id_length = 9

    def recognizes(self, template: str) -> bool:
        return "[TOOL_CALLS]" in template

    def tuned(self, template: str) -> Self:
        named: Self = MistralNamed() if _ARGUMENTS in template else self  # type: ignore[assignment]
        return named

    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        yield from source.space()
        if (yield from source.more()) and source.text[source.at] in "[{":
            yield from json_calls(source)
        else:
            yield from self._named(source)

    def section(self, lark: Lark, tools: Tools) -> str:
        return json_list(lark, tools)

    def _named(self, source: Source) -> Reader[None]:
        name = yield from source.word("_-.", LONGEST_NAME)
        if (yield from source.accept(_ID)):
            yield from source.word("_-", LONGEST_NAME)
        opened = yield from source.accept(_ARGUMENTS)
        yield from source.space()
        if not name or not (yield from source.more()) or not (opened or source.text[source.at] == "{"):
            raise Malformed
        yield Part("call", name)
        yield from arguments(source)


class MistralNamed(Mistral):
    """The newer way: a section for each call."""

    def section(self, lark: Lark, tools: Tools) -> str:
        return lark.either(
            f"{lark.quoted(each.name)} {lark.marker(_ARGUMENTS)} {lark.json(tools.schema_of(each))}"
            for each in tools.callable()
        )

    def grammar(self, lark: Lark, tools: Tools) -> str:
        one = super().grammar(lark, tools)
        return f"( {one} )+" if tools.must_be_called and tools.may_be_several else one
