"""CallFormat: how one family of models writes tool calls: what begins a section, how it is read, its language."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from quire.protocol.parsers.parts import Reader
from quire.protocol.parsers.source import Source
from quire.protocol.parsers.tools import Function, Tools
from quire.sampling.grammar.lark import Lark


class CallFormat(ABC):
    """One format. It has no state: what has been read of an answer is its reader's."""

    opens: ClassVar[tuple[str, ...]] = ()
    """What begins a section, wherever in the content it stands. The first is the one a grammar writes."""
    bare: ClassVar[tuple[str, ...]] = ()
    """What begins a section as the first thing that is said, and nowhere else."""
    ends: ClassVar[tuple[str, ...]] = ()
    """What may stand behind a section and belongs to it: markers, and brackets too many."""
    inside: ClassVar[tuple[str, ...]] = ()
    """Other markers of the format, within a section."""
    always: ClassVar[bool] = False
    """Whether every answer is written in sections, with tools or without."""
    between: ClassVar[str] = "\n"
    """What a grammar writes between two sections."""
    id_length: ClassVar[int | None] = None
    """Letters and digits of a call's id, for templates that insist; None: as OpenAI's."""

    @property
    def markers(self) -> tuple[str, ...]:
        """All that may be special tokens."""
        return (*self.opens, *self.inside, *self.ends)

    @abstractmethod
    def recognizes(self, template: str) -> bool:
        """Whether the text of a chat template shows that its model writes this format."""

    def tuned(self, template: str) -> Self:
        """The variant of the format that the template shows."""
        return self

    @abstractmethod
    def read(self, source: Source, opening: str, tools: Tools) -> Reader[None]:
        """What stands behind `opening`, up to the `ends` of the section.

        Malformed before the first part: it is no section, and its text is content.
        """

    @abstractmethod
    def section(self, lark: Lark, tools: Tools) -> str:
        """The language of a section, with its opening, as the right side of a rule."""

    def free(self, lark: Lark, section: str) -> str:
        """The language of text with or without sections in it. `section` is a rule without its opening."""
        (opening,) = self.opens[:1]
        return f"( {lark.text_to(opening)} {section} )* {lark.text()}"

    def answer(self, lark: Lark, rule: str) -> str:
        """The language of an answer whose content is `rule`."""
        return rule

    def grammar(self, lark: Lark, tools: Tools) -> str:
        """The language of calls where they must be made, and of text with calls where they may."""
        section, opening = lark.rule("section", self.section(lark, tools)), self._opening(lark)
        if not tools.must_be_called:
            return self.free(lark, section)
        more = f" ( {lark.quoted(self.between)} {opening} {section} )*" if tools.may_be_several and self.between else ""
        return f"{opening} {section}{more}"

    def _opening(self, lark: Lark) -> str:
        return lark.marker(self.opens[0])


def json_section(lark: Lark, tools: Tools, arguments: str = "arguments") -> str:
    """A call as a JSON object."""

    def one(function: Function) -> str:
        start = f'{{"name": {lark.quoted(function.name)}, "{arguments}": '
        return f'{lark.quoted(start)} {lark.json(tools.schema_of(function))} "}}"'

    return lark.rule("call", lark.either(one(function) for function in tools.callable()))


def json_list(lark: Lark, tools: Tools) -> str:
    """Calls as a JSON list of objects."""
    call = json_section(lark, tools)
    return f'"[" {call} ( ", " {call} )* "]"' if tools.may_be_several else f'"[" {call} "]"'
