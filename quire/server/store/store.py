"""Store: JSON documents and files of many tenants on the local disk: stored responses, conversations and batches.

Documents are rows of an SQLite database (see rows.py for why), files stand beside it. All disk work is done on
threads of the store's own, so a slow disk holds up neither the event loop nor tokenizing.
"""

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Literal, ParamSpec, TypeVar

import msgspec

from quire.core.errors import ConfigError, InvalidRequest, QuireError
from quire.protocol.ids import is_id
from quire.server.store.blobs import BlobFiles
from quire.server.store.limits import BLOB, StoreFull, StoreLimits
from quire.server.store.rows import Row, Rows
from quire.server.store.secret import read_secret

Document = dict[str, Any]
Change = Callable[[Document], Document]
Order = Literal["asc", "desc"]
Owned = list[tuple[str, str]]
"""Tenants and the ids of what is theirs."""

_CHUNK = 1 << 20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_P = ParamSpec("_P")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a list."""

    documents: list[Document]
    has_more: bool


class BlobWriter:
    """A file on its way to disk."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._write = write
        self._buffer = bytearray()
        self.size = 0

    async def write(self, data: bytes) -> None:
        """Raises a StoreFull where it no longer fits."""
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) >= _CHUNK:
            await self.flush()

    async def flush(self) -> None:
        data, self._buffer = bytes(self._buffer), bytearray()
        if data:
            await self._write(data)


class _Upload:
    """What the store knows of a file that is being written."""

    def __init__(self, tenant: str, identity: str, room: int) -> None:
        self.tenant = tenant
        self.identity = identity
        self.room = room
        self.size = 0
        self.file: BinaryIO | None = None
        self.work: Future[None] | None = None
        """What a thread does with the file now, or did last."""

    def write(self, data: bytes) -> None:
        assert self.file is not None
        left = memoryview(data)
        while left:
            left = left[self.file.write(left) :]

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


class Store:
    """Documents by kind, tenant and id; files by tenant and id. One tenant never sees another's.

    Whoever reads behind a `put_soon` finds what it put, though nobody waited for it.
    """

    def __init__(self, folder: Path, limits: StoreLimits | None = None) -> None:
        """Raises a ConfigError where the folder cannot be used; removes what a killed server left unfinished."""
        self._limits = limits or StoreLimits()
        self._queueing = Lock()
        self._is_closed = False
        self._queue: list[Row] = []
        self._unwritten = 0
        """Documents in the queue, those on their way from it to disk, and changes that nobody waits for."""
        self._unwritten_bytes = 0
        self._uploading: Counter[str] = Counter()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._files = BlobFiles(folder / "files")
            self.secret = read_secret(folder / "secret")
        except OSError as error:
            raise ConfigError(f"the store's folder {folder} cannot be used: {error}; choose another.") from error
        self._row_thread = ThreadPoolExecutor(1, "quire-store")
        self._file_threads = ThreadPoolExecutor(4, "quire-files")
        try:
            self._rows = self._row_thread.submit(Rows, folder / "store.sqlite", self._limits).result()
            recorded = {self._files.name(*each) for each in self._row_thread.submit(self._rows.every, BLOB).result()}
        except BaseException:
            self._row_thread.shutdown()
            self._file_threads.shutdown()
            raise
        self._files.sweep(recorded)

    def close(self) -> None:
        """Writes what is still waiting to be written."""
        with self._queueing:
            self._is_closed = True
        self._file_threads.shutdown()
        self._row_thread.submit(self._rows.close)
        self._row_thread.shutdown()

    async def put(self, kind: str, tenant: str, identity: str, document: Document) -> None:
        """Add or replace a document; it is on disk when this returns. Raises a StoreFull where it does not fit."""
        _check(identity)
        await self._on_rows(self._rows.put, Row(kind, tenant, identity, msgspec.json.encode(document)))

    def put_soon(self, kind: str, tenant: str, identity: str, document: Document) -> None:
        """Add or replace a document without waiting for the disk. A failure is logged: call `check_room` beforehand."""
        _check(identity)
        body = msgspec.json.encode(document)
        with self._queueing:
            if self._is_closed or self._is_behind():
                _log.error("the %s %s is not stored: %s", kind, identity, self._why_not())
                return
            self._queue.append(Row(kind, tenant, identity, body))
            self._unwritten += 1
            self._unwritten_bytes += len(body)
            if len(self._queue) == 1:
                self._row_thread.submit(self._write_queue)

    async def change(self, kind: str, tenant: str, identity: str, change: Change) -> bool:
        """Replace a document by what `change` makes of it; no other writer comes between. False: there is none.

        `change` runs on a thread of the store. What it raises is raised here, and leaves the document as it was.
        """
        return is_id(identity) and await self._on_rows(self._rows.change, kind, tenant, identity, _of_bytes(change))

    def change_soon(self, kind: str, tenant: str, identity: str, change: Change) -> None:
        """As `change`, without waiting for the disk. A failure is logged."""
        with self._queueing:
            if self._is_closed or self._is_behind():
                _log.error("the %s %s is not changed: %s", kind, identity, self._why_not())
                return
            self._unwritten += 1
            self._row_thread.submit(self._change_alone, kind, tenant, identity, _of_bytes(change))

    async def check_room(self) -> None:
        """Raises a StoreFull while nothing more can be stored, before work is done whose result would be lost."""
        if self._is_behind():
            raise StoreFull("the server's disk is too slow for what is being stored; try again later.")
        await self._on_rows(self._rows.check_disk)

    async def flush(self) -> None:
        """Returns when all that was put before is on disk."""
        await self._on_rows(lambda: None)

    async def get(self, kind: str, tenant: str, identity: str) -> Document | None:
        """None where the tenant has no such document."""
        if not is_id(identity):
            return None
        body = await self._on_rows(self._rows.get, kind, tenant, identity)
        return None if body is None else msgspec.json.decode(body, type=Document)

    async def delete(self, kind: str, tenant: str, identity: str) -> bool:
        """Whether there was such a document."""
        return is_id(identity) and await self._on_rows(self._rows.delete, kind, tenant, identity)

    async def list(
        self,
        kind: str,
        tenant: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
        where: Mapping[str, str] | None = None,
    ) -> Page:
        """A tenant's documents as they were first put, newest first, from behind the one called `after`.

        `where` picks those whose fields have these texts. Raises an InvalidRequest where there is no `after`.
        """
        if after is not None and not is_id(after):
            raise InvalidRequest(f"after is {after[:80]!r}, which is not the id of a {kind}", field="after")
        bodies = await self._on_rows(self._rows.page, kind, tenant, after, limit + 1, order == "desc", where or {})
        documents = [msgspec.json.decode(body, type=Document) for body in bodies[:limit]]
        return Page(documents, has_more=len(bodies) > limit)

    async def every(self, kind: str) -> Owned:
        """Tenant and id of every document of a kind, oldest first: for work to be taken up again after a start."""
        return await self._on_rows(self._rows.every, kind)

    @asynccontextmanager
    async def write_blob(self, tenant: str, identity: str) -> AsyncIterator[BlobWriter]:
        """A new file: it exists, whole and on disk, once the block has ended, and not at all where the block fails."""
        _check(identity)
        if await self.has_blob(tenant, identity):
            raise InvalidRequest(f"there is already a file {identity}; a file is written once")
        upload = _Upload(tenant, identity, await self._room_for_file(tenant))
        writer = BlobWriter(lambda data: self._write(upload, data))
        try:
            await self._work_on(upload, self._begin, upload)
            yield writer
            await writer.flush()
            await self._work_on(upload, self._place, upload)
            await self._on_rows(self._rows.put, Row(BLOB, tenant, identity, b"", upload.size))
            upload.close()
        except BaseException:
            # to the end even when the request is cancelled: half a file would lie there until the next start
            await asyncio.shield(self._take_back(upload))
            raise
        finally:
            self._uploading[tenant] -= upload.size

    async def read_blob(self, tenant: str, identity: str, chunk_bytes: int = _CHUNK) -> AsyncIterator[bytes]:
        """A file in chunks; nothing where there is none, so ask `has_blob` first. Deleting it does not cut it off."""
        if not await self.has_blob(tenant, identity):
            return
        file = await self._on_files(self._files.open, tenant, identity)
        try:
            while chunk := await self._on_files(file.read, chunk_bytes):
                yield chunk
        finally:
            file.close()

    async def has_blob(self, tenant: str, identity: str) -> bool:
        return is_id(identity) and await self._on_rows(self._rows.get, BLOB, tenant, identity) is not None

    async def delete_blob(self, tenant: str, identity: str) -> bool:
        """Whether there was such a file."""
        found = is_id(identity) and await self._on_rows(self._rows.delete, BLOB, tenant, identity)
        if found:
            await self._on_files(self._files.remove, tenant, identity)
        return found

    async def _room_for_file(self, tenant: str) -> int:
        """Bytes that this tenant may still upload, those on their way included."""
        await self._on_rows(self._rows.check_disk)
        limits = self._limits.kinds[BLOB]
        own = await self._on_rows(self._rows.held, BLOB, tenant)
        everyone = await self._on_rows(self._rows.held, BLOB)
        if own.documents >= limits.tenant_documents or everyone.documents >= limits.documents:
            raise StoreFull(f"there is no room for another file: there are {own.documents:,} of yours; delete some.")
        return min(limits.tenant_bytes - own.bytes, limits.total_bytes - everyone.bytes)

    async def _write(self, upload: "_Upload", data: bytes) -> None:
        most = self._limits.kinds[BLOB].item_bytes
        upload.size += len(data)
        self._uploading[upload.tenant] += len(data)
        if upload.size > most:
            raise StoreFull(f"the file is larger than the {most:,} bytes that one may have")
        if self._uploading[upload.tenant] > upload.room:
            raise StoreFull(f"there is no room for the file: {upload.room:,} bytes are left; delete others first.")
        await self._on_rows(self._rows.check_disk)
        await self._work_on(upload, upload.write, data)

    async def _take_back(self, upload: "_Upload") -> None:
        await self._on_rows(self._rows.delete, BLOB, upload.tenant, upload.identity)
        await self._on_files(self._discard, upload)

    def _discard(self, upload: "_Upload") -> None:
        if upload.work is not None:
            wait([upload.work])  # a cancelled request leaves its thread writing
        self._files.discard(upload.tenant, upload.identity)
        upload.close()

    def _begin(self, upload: "_Upload") -> None:
        upload.file = self._files.begin(upload.tenant, upload.identity)

    def _place(self, upload: "_Upload") -> None:
        assert upload.file is not None
        self._files.place(upload.file, upload.tenant, upload.identity)

    async def _work_on(self, upload: "_Upload", work: Callable[_P, None], *args: _P.args, **kwargs: _P.kwargs) -> None:
        upload.work = self._file_threads.submit(work, *args, **kwargs)
        await _done(upload.work)

    def _is_behind(self) -> bool:
        most = self._limits
        return self._unwritten >= most.unwritten or self._unwritten_bytes >= most.unwritten_bytes

    def _why_not(self) -> str:
        return "the server is on its way out" if self._is_closed else "the disk is too far behind"

    def _write_queue(self) -> None:
        """All that wait go to disk at once: a thousand streams that end together cost one wait for the disk."""
        with self._queueing:
            rows, self._queue = self._queue, []
        try:
            self._rows.put_all(rows)
        except QuireError:
            for row in rows:
                self._write_alone(row)
        finally:
            with self._queueing:
                self._unwritten -= len(rows)
                self._unwritten_bytes -= sum(len(row.body) for row in rows)

    def _write_alone(self, row: Row) -> None:
        try:
            self._rows.put_all([row])
        except QuireError as error:
            _log.error("the %s %s is not stored: %s", row.kind, row.identity, error)

    def _change_alone(self, kind: str, tenant: str, identity: str, change: Callable[[bytes], bytes]) -> None:
        try:
            found = self._rows.change(kind, tenant, identity, change)
        except QuireError as error:
            _log.error("the %s %s is not changed: %s", kind, identity, error)
        else:
            if not found:
                _log.info("the %s %s is not changed: it was deleted meanwhile", kind, identity)
        finally:
            with self._queueing:
                self._unwritten -= 1

    async def _on_rows(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.wrap_future(self._row_thread.submit(work, *args, **kwargs))

    async def _on_files(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await _done(self._file_threads.submit(work, *args, **kwargs))


def _of_bytes(change: Change) -> Callable[[bytes], bytes]:
    return lambda body: msgspec.json.encode(change(msgspec.json.decode(body, type=Document)))


def _check(identity: str) -> None:
    if not is_id(identity):
        raise QuireError(f"{identity!r} cannot be an id of the store; make them with new_id")


async def _done(work: "Future[_T]") -> _T:
    try:
        return await asyncio.wrap_future(work)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise StoreFull(f"the server's disk is full ({error.strerror}); nothing was stored.") from error
        raise
