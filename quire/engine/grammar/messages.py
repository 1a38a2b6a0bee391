"""What the process that checks grammars is asked, and what it answers."""

import msgspec

from quire.core.structured import Loosened, StructuredOutput


class Check(msgspec.Struct, tag=True):
    """Whether a grammar can be used. One that is not strict is loosened first."""

    structured: StructuredOutput


class Validate(msgspec.Struct, tag=True):
    """Whether a text satisfies a JSON schema."""

    schema: str
    text: str


Question = Check | Validate


class Verdict(msgspec.Struct):
    """What was found."""

    problem: str | None = None
    """What is wrong with the grammar, or with the text."""
    loosened: Loosened | None = None
    """Of a grammar that is not strict."""
