"""AnswerMessage: an answer of a chat as a whole: what was thought, said and called."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ToolCall:
    """A call that the model asks for."""

    identity: str
    name: str
    arguments: str = ""
    """JSON text as the model wrote it, which may be broken."""


@dataclass(slots=True)
class AnswerMessage:
    """What was thought, said and called."""

    reasoning: str = ""
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)
