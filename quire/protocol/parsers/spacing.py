"""Spacing: blank space that belongs to the markers around content and thinking rather than to what is said."""

from quire.protocol.parsers.parts import Kind, Part

_SPACE = " \t\r\n"


class Spacing:
    """Holds blank space until it is known what follows. An answer without thinking and calls keeps all of its own."""

    def __init__(self) -> None:
        self.has_content = False
        """Whether anything but blank space was content so far."""
        self._apart = False
        """Whether thinking or a call came, so that blank space next to content may be theirs."""
        self._held = ""
        self._kind: Kind = "content"
        self._has_reasoning = False

    def part_of_its_own(self) -> None:
        """Thinking or a call has just ended: blank space before it was its own."""
        self._apart = True
        self._held = ""

    def spaced(self, part: Part) -> list[Part]:
        """What of a part may go out now, with the blank space before it where that is wanted."""
        if part.kind in ("call", "arguments"):
            self._held = ""
            return [part] if part.text or part.kind == "call" else []
        if part.kind != self._kind:
            self._kind, self._held = part.kind, ""
        said = part.text.rstrip(_SPACE)
        if not said:
            self._held += part.text
            return []
        before = self._held
        self._held = part.text[len(said) :]
        return [Part(part.kind, self._begun(before, said))]

    def end(self) -> list[Part]:
        """Blank space at the end of an answer that is nothing but content is part of it."""
        held, self._held = self._held, ""
        return [Part("content", held)] if held and self._kind == "content" and not self._apart else []

    def _begun(self, before: str, said: str) -> str:
        if self._kind == "reasoning":
            is_first, self._has_reasoning = not self._has_reasoning, True
        else:
            is_first, self.has_content = self._apart and not self.has_content, True
        return (before + said).lstrip(_SPACE) if is_first else before + said
