"""What can be wrong with a grammar."""

from quire.core.errors import InvalidRequest


class GrammarError(InvalidRequest):
    """A grammar is malformed, unsupported, or no text satisfies it; its field is always `structured`."""

    def __init__(self, message: str) -> None:
        super().__init__(message, field="structured")
