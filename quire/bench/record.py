"""What one request met: when it was sent, when each piece of its answer came, and how many tokens that was."""

from typing import Literal

import msgspec

CountedBy = Literal["usage", "tokenizer"]


class RequestRecord(msgspec.Struct, frozen=True):
    """Times are seconds from the start of the run."""

    number: int
    planned: float
    """When it should have been sent."""
    sent: float
    pieces: list[float] = []
    """When each piece with something generated arrived. A piece may hold several tokens."""
    ended: float = 0.0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """As `counted_by` counted them; None where nobody could. Never the number of pieces."""
    cached_tokens: int | None = None
    counted_by: CountedBy | None = None
    finish_reason: str | None = None
    error: str | None = None
    """The kind of error, for counting: `timeout`, `http 503`."""
    error_text: str = ""

    @property
    def is_ok(self) -> bool:
        return self.error is None

    @property
    def ttft(self) -> float | None:
        """Sending to the first piece."""
        return self.pieces[0] - self.sent if self.pieces else None

    @property
    def e2e(self) -> float | None:
        """Sending to the last piece."""
        return self.pieces[-1] - self.sent if self.pieces else None

    @property
    def tpot(self) -> float | None:
        """Time per token after the first, from the tokens that were counted."""
        if not self.pieces or self.output_tokens is None or self.output_tokens < 2:
            return None
        return (self.pieces[-1] - self.pieces[0]) / (self.output_tokens - 1)

    @property
    def itl(self) -> list[float]:
        """Gaps between pieces: what a reader sees, whatever number of tokens a piece holds."""
        return [later - earlier for earlier, later in zip(self.pieces, self.pieces[1:], strict=False)]
