"""How a request ended, in one of few words; only the last two are faults of the server."""

from dataclasses import dataclass
from typing import Any

WHOLE = "whole"
"""Equal to the reference in every field."""
LEFT = "left"
"""Its client left in the middle."""
DEADLINE = "deadline"
"""Its time was over, as its client had said."""
REFUSED = "refused"
"""A hostile body, refused as such."""
UNAVAILABLE = "unavailable"
"""503 with Retry-After, or an error event that says when to try again."""
OVERLOADED = "overloaded"
"""429 with Retry-After."""
FULL = "disk full"
"""507 while the disk was full."""
CUT = "cut"
"""Its connection broke while a front, or the network of a WebSocket, did."""
WRONG = "wrong"
"""Another answer, another error, or two ends."""
HUNG = "hung"
"""Nothing came for minutes."""

KINDS = (WHOLE, LEFT, DEADLINE, REFUSED, UNAVAILABLE, OVERLOADED, FULL, CUT, WRONG, HUNG)
FAULTY = frozenset({WRONG, HUNG})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request."""

    kind: str
    detail: str = ""
    answer: Any = None


class Ended(Exception):
    """A request ended otherwise than with its answer."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
