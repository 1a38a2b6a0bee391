"""Files: what clients upload and what batches leave behind. Each is a document of the store and its bytes."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import msgspec

from quire.protocol.ids import new_id
from quire.server.store.limits import FILE
from quire.server.store.store import Order, Store

Purpose = Literal["batch", "batch_output", "vision", "user_data"]
PURPOSES: tuple[Purpose, ...] = ("batch", "batch_output", "vision", "user_data")
UPLOADED: tuple[Purpose, ...] = ("batch", "vision", "user_data")
"""What clients upload files for: batches, and images of conversations, which the last two mean alike."""
MOST_BYTES = 200 << 20
"""Of one upload; as much as OpenAI takes for a batch."""

_LONGEST_UPLOAD = 3600.0
"""Seconds; a document that has had no bytes for so long will never have any."""


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One file. Times are whole seconds since 1970."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: Purpose
    expires_at: int | None = None

    def body(self) -> dict[str, Any]:
        """As clients read it."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {"object": "file", "status": "processed", "status_details": None} | fields


class Files:
    """The files of all tenants. A file whose time is over is gone, whether or not it has been swept away yet."""

    def __init__(self, store: Store, *, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self.most_bytes = most_bytes

    async def add(
        self,
        tenant: str,
        chunks: AsyncIterator[bytes],
        *,
        filename: str,
        purpose: Purpose,
        seconds: int | None = None,
        identity: str | None = None,
    ) -> FileRecord:
        """Store a file, whole or not at all, for `seconds`. One of the same `identity` is replaced."""
        if identity is None:
            identity = new_id("file-")
        else:
            await self.delete(tenant, identity)
        try:
            async with self._store.write_blob(tenant, identity) as writer:
                async for chunk in chunks:
                    await writer.write(chunk)
                # before its bytes are in place: a document without them is no file, and is swept away when it is old
                record = self._record(identity, writer.size, filename, purpose, seconds)
                await self._store.put(FILE, tenant, identity, msgspec.to_builtins(record))
        except BaseException:
            await asyncio.shield(self._store.delete(FILE, tenant, identity))
            raise
        return record

    async def get(self, tenant: str, identity: str) -> FileRecord | None:
        found = await self._store.get(FILE, tenant, identity)
        if found is None:
            return None
        record = msgspec.convert(found, FileRecord)
        if self._is_over(record) or not await self._store.has_blob(tenant, identity):
            return None
        return record

    async def page(
        self, tenant: str, *, after: str | None, limit: int, order: Order, purpose: str | None
    ) -> tuple[list[FileRecord], bool]:
        """A piece of the list, and whether more follow."""
        where = {} if purpose is None else {"purpose": purpose}
        page = await self._store.list(FILE, tenant, after=after, limit=limit, order=order, where=where)
        records = [msgspec.convert(document, FileRecord) for document in page.documents]
        return [record for record in records if not self._is_over(record)], page.has_more

    def content(self, tenant: str, identity: str) -> AsyncIterator[bytes]:
        return self._store.read_blob(tenant, identity)

    async def delete(self, tenant: str, identity: str) -> bool:
        """Whether there was such a file."""
        found = await self._store.delete(FILE, tenant, identity)
        await self._store.delete_blob(tenant, identity)
        return found

    async def sweep(self, keep: Callable[[str, str], Awaitable[object | None]]) -> None:
        """Delete what has expired, and documents of files that a kill kept from being written.

        `keep` says of tenant and id who still needs a file.
        """
        before = self._clock() - _LONGEST_UPLOAD
        for tenant, identity in await self._store.every(FILE):
            document = await self._store.get(FILE, tenant, identity)
            if document is None:
                continue
            record = msgspec.convert(document, FileRecord)
            lost = record.created_at < before and not await self._store.has_blob(tenant, identity)
            if lost or (self._is_over(record) and await keep(tenant, identity) is None):
                await self.delete(tenant, identity)

    def _is_over(self, record: FileRecord) -> bool:
        return record.expires_at is not None and record.expires_at <= self._clock()

    def _record(self, identity: str, size: int, filename: str, purpose: Purpose, seconds: int | None) -> FileRecord:
        now = int(self._clock())
        return FileRecord(
            id=identity,
            bytes=size,
            created_at=now,
            filename=filename,
            purpose=purpose,
            expires_at=None if seconds is None else now + seconds,
        )
