"""What can be wrong with a grammar."""

from quire.core.errors import InvalidRequest


class GrammarError(InvalidRequest):
    """A grammar is malformed, unsupported, or no text satisfies it; its field is always `structured`."""

    def __init__(self, message: str, pointer: str | None = None) -> None:
        """`pointer` is where in a JSON schema the keyword stands that is to blame, as far as that is known."""
        super().__init__(message, field="structured")
        self.pointer = pointer
