"""PlannedRequest: one request before it is sent."""

from typing import Any

import msgspec

Message = dict[str, Any]


class PlannedRequest(msgspec.Struct, frozen=True):
    """What to ask: token ids, a text or a conversation."""

    number: int
    ids: tuple[int, ...] | None = None
    text: str | None = None
    messages: list[Message] | None = None
    output_tokens: int | None = None
    """To ask for, without an early end; None leaves the end to the model."""
    arrival: float | None = None
    """Seconds, where the dataset knows a moment."""

    @property
    def plain_text(self) -> str:
        """All its text, for counting tokens; empty for token ids."""
        if self.text is not None:
            return self.text
        contents = [message.get("content") for message in self.messages or ()]
        return "\n".join(content for content in contents if isinstance(content, str))
