"""What the store may hold of each kind, and the error when it is full."""

from dataclasses import dataclass, field

from quire.core.errors import Unavailable

RESPONSE = "response"
ITEM = "item"
"""Where an item of a stored response is to be found."""
CONVERSATION = "conversation"
FILE = "file"
BATCH = "batch"
BLOB = "blob"

_MIB = 1 << 20
_GIB = 1 << 30


class StoreFull(Unavailable):
    """A document or file was not taken in because there is no room for it; nothing that was there is lost."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after=10.0)  # room comes when somebody deletes something


@dataclass(frozen=True, slots=True)
class KindLimits:
    """How much there may be of one kind."""

    documents: int
    """Of all tenants together."""
    tenant_documents: int
    total_bytes: int
    """Of all tenants together."""
    tenant_bytes: int
    item_bytes: int
    """Of one document or one file."""
    oldest_go_first: bool = False
    """Whether the oldest make room for a new one. Where not, a new one is refused."""


def default_kinds() -> dict[str, KindLimits]:
    """Responses make room for newer ones, as they are only history; what clients uploaded or began is theirs."""
    return {
        RESPONSE: KindLimits(200_000, 50_000, 8 * _GIB, 2 * _GIB, 64 * _MIB, oldest_go_first=True),
        ITEM: KindLimits(1_000_000, 250_000, _GIB, _GIB // 4, _MIB, oldest_go_first=True),
        CONVERSATION: KindLimits(200_000, 50_000, 8 * _GIB, 2 * _GIB, 64 * _MIB),
        FILE: KindLimits(50_000, 10_000, _GIB, _GIB // 4, _MIB),
        BATCH: KindLimits(50_000, 10_000, _GIB, _GIB // 4, _MIB),
        BLOB: KindLimits(50_000, 10_000, 64 * _GIB, 16 * _GIB, _GIB // 2),
    }


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """The bounds of a store."""

    kinds: dict[str, KindLimits] = field(default_factory=default_kinds)
    free_bytes: int = 128 * _MIB
    """What writing leaves free on the disk, so that deleting still works when it is full."""
    unwritten: int = 20_000
    """How many documents may wait to be written."""
    unwritten_bytes: int = 256 * _MIB
