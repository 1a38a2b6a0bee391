"""BatchDesk: what routes ask of batches, whether they run in this process or in another front's."""

from collections.abc import Callable
from typing import Protocol

from quire.server.batches.record import BatchRecord
from quire.server.store.files import Files
from quire.server.store.store import Order


class BatchDesk(Protocol):
    """All batches of the server."""

    files: Files
    """What batches read and leave."""
    clock: Callable[[], float]

    @property
    def endpoints(self) -> tuple[str, ...]:
        """What a batch may ask."""

    async def create(self, record: BatchRecord) -> BatchRecord:
        """Store a batch and let it run. Raises an Overloaded where its tenant has too many."""

    async def get(self, tenant: str, identity: str) -> BatchRecord:
        """Raises a NotFound where the tenant has no such batch."""

    async def page(self, tenant: str, *, after: str | None, limit: int, order: Order) -> tuple[list[BatchRecord], bool]:
        """A piece of the list, and whether more follow."""

    async def cancel(self, tenant: str, identity: str) -> BatchRecord:
        """Stop a batch; it is `cancelling` until its running requests are gone. Asking twice changes nothing."""

    async def reader_of(self, tenant: str, file_id: str) -> str | None:
        """The unfinished batch that needs a file."""
