"""The store's database: one row for every document and every file, and what each tenant holds. Used by one thread.

SQLite rather than a file for each document: a write is all or nothing through kill -9 and a full disk, pages of a list
come in order from an index, and what a tenant holds is known without walking a folder.
"""

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from quire.core.errors import ConfigError, InvalidRequest, Unavailable
from quire.server.store.limits import KindLimits, StoreFull, StoreLimits

_VERSION = 1
_SCHEMA = """
CREATE TABLE entries (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL, tenant TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, size INTEGER NOT NULL,
    UNIQUE (kind, tenant, id)
);
CREATE INDEX in_order ON entries (kind, tenant, place);
CREATE TABLE held (
    kind TEXT NOT NULL, tenant TEXT NOT NULL, documents INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (kind, tenant)
);
CREATE TRIGGER entered AFTER INSERT ON entries BEGIN
    INSERT INTO held VALUES (new.kind, new.tenant, 1, new.size)
    ON CONFLICT DO UPDATE SET documents = documents + 1, bytes = bytes + new.size;
END;
CREATE TRIGGER changed AFTER UPDATE OF size ON entries BEGIN
    UPDATE held SET bytes = bytes + new.size - old.size WHERE kind = new.kind AND tenant = new.tenant;
END;
CREATE TRIGGER removed AFTER DELETE ON entries BEGIN
    UPDATE held SET documents = documents - 1, bytes = bytes - old.size WHERE kind = old.kind AND tenant = old.tenant;
    DELETE FROM held WHERE kind = old.kind AND tenant = old.tenant AND documents = 0;
END;
"""
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
"""A write beyond what the file system allows is told as either."""
_PATIENCE = 10.0
"""Seconds to wait for other processes that use the database."""


@dataclass(frozen=True, slots=True)
class Row:
    """A document or a file, as it is put."""

    kind: str
    tenant: str
    identity: str
    body: bytes
    file_size: int | None = None
    """Bytes of a file that stands beside the database."""

    @property
    def size(self) -> int:
        return len(self.body) if self.file_size is None else self.file_size


@dataclass(frozen=True, slots=True)
class Held:
    """How much there is of a kind."""

    documents: int
    bytes: int


class Rows:
    """Every row names its tenant, and every question asks for one: a tenant cannot reach another's rows."""

    def __init__(self, path: Path, limits: StoreLimits) -> None:
        self._path = path
        self._limits = limits
        try:
            self._database = sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE)
        except sqlite3.Error as error:
            raise ConfigError(f"the store {path} cannot be opened: {error}; choose another folder.") from error
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise ConfigError(
                f"the store {path} cannot be read: {error}; move it away to start with an empty one."
            ) from error
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        self._database.close()

    def put(self, row: Row) -> None:
        """Add or replace; a replaced one keeps its place in lists."""
        self.put_all([row])

    def put_all(self, rows: Sequence[Row]) -> None:
        """All of them, or none where one does not fit."""
        self.check_disk()
        with self._writing():
            for row in rows:
                self._put(row)

    def _put(self, row: Row) -> None:
        limits = self._limits.kinds[row.kind]
        if row.size > limits.item_bytes:
            raise StoreFull(
                f"a {row.kind} of {row.size:,} bytes is more than the {limits.item_bytes:,} that are stored as one"
            )
        self._database.execute(
            "INSERT INTO entries (kind, tenant, id, body, size) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (kind, tenant, id) DO UPDATE SET body = excluded.body, size = excluded.size",
            (row.kind, row.tenant, row.identity, row.body, row.size),
        )
        self._make_room(row, limits)

    def get(self, kind: str, tenant: str, identity: str) -> bytes | None:
        with self._reading():
            return self._get(kind, tenant, identity)

    def change(self, kind: str, tenant: str, identity: str, change: Callable[[bytes], bytes]) -> bool:
        """Replace a document by what `change` makes of it, which nobody else changes meanwhile. False: there is none.

        What `change` raises leaves it as it was.
        """
        self.check_disk()
        with self._writing():
            before = self._get(kind, tenant, identity)
            if before is not None:
                self._put(Row(kind, tenant, identity, change(before)))
            return before is not None

    def _get(self, kind: str, tenant: str, identity: str) -> bytes | None:
        row = self._one("SELECT body FROM entries WHERE kind = ? AND tenant = ? AND id = ?", (kind, tenant, identity))
        if row is None:
            return None
        assert isinstance(row[0], bytes), "bodies are stored as blobs"
        return row[0]

    def delete(self, kind: str, tenant: str, identity: str) -> bool:
        """Whether there was one."""
        with self._writing():
            asked = (kind, tenant, identity)
            done = self._database.execute("DELETE FROM entries WHERE kind = ? AND tenant = ? AND id = ?", asked)
            return done.rowcount > 0

    def page(
        self, kind: str, tenant: str, after: str | None, limit: int, newest_first: bool, where: Mapping[str, str]
    ) -> list[bytes]:
        """At most `limit` documents behind the one called `after`; `where` are fields they must have so."""
        conditions = ["kind = ?", "tenant = ?"]
        values: list[str | int] = [kind, tenant]
        with self._reading():
            if after is not None:
                conditions.append(f"place {'<' if newest_first else '>'} ?")
                values.append(self._place(kind, tenant, after))
            for name, value in where.items():
                conditions.append("json_extract(CAST(body AS TEXT), ?) = ?")
                values.extend((f'$."{name}"', value))
            order = "DESC" if newest_first else "ASC"
            # conditions and order are texts of this function; what a client names is among the values
            asked = f"SELECT body FROM entries WHERE {' AND '.join(conditions)} ORDER BY place {order} LIMIT ?"  # nosec B608
            return [row[0] for row in self._database.execute(asked, (*values, limit))]

    def every(self, kind: str) -> list[tuple[str, str]]:
        """Tenant and id of all there are, oldest first; for the server's own use."""
        with self._reading():
            return list(self._database.execute("SELECT tenant, id FROM entries WHERE kind = ? ORDER BY place", (kind,)))

    def held(self, kind: str, tenant: str | None = None) -> Held:
        """What a tenant has of a kind; what all have where none is named."""
        with self._reading():
            return self._held(kind, tenant)

    def check_disk(self) -> None:
        """Raises a StoreFull where the disk has no room to spare."""
        try:
            free = shutil.disk_usage(self._path.parent).free
        except OSError as error:
            raise Unavailable(f"the server's store is gone: {error.strerror}; it must be started again.") from error
        if free < self._limits.free_bytes:
            raise StoreFull(
                f"the server's disk is full: {free:,} bytes are free and {self._limits.free_bytes:,} are kept; nothing "
                "can be stored until space is made on it."
            )

    def _prepare(self) -> None:
        self._log_writes()
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("PRAGMA secure_delete = ON")  # what a client deleted is not to be found in the file
        with self._writing():
            found = self._database.execute("PRAGMA user_version").fetchone()[0]
            if found == 0:
                for statement in _statements(_SCHEMA):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {_VERSION}")
            elif found != _VERSION:
                raise ConfigError(
                    f"the store {self._path} has format {found} and this quire reads {_VERSION}; "
                    "move it away to start with an empty one, or run the quire that wrote it."
                )

    def _log_writes(self) -> None:
        """In a file of their own (WAL). Whoever turns that on has the new database alone for a moment, and SQLite waits
        for nobody there: fronts that start together would fail."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _make_room(self, newest: Row, limits: KindLimits) -> None:
        """The tenant that holds most loses its oldest, so that nobody can push out those who hold little."""
        kind, tenant = newest.kind, newest.tenant
        while (crowded := self._crowded(kind, tenant, limits)) is not None:
            whose, why = crowded
            oldest = self._one(
                "SELECT place FROM entries WHERE kind = ? AND tenant = ? AND NOT (tenant = ? AND id = ?)"
                " ORDER BY place LIMIT 1",
                (kind, whose, tenant, newest.identity),
            )
            if not limits.oldest_go_first or oldest is None:
                raise StoreFull(f"there is no room for another {kind}: {why}; delete some first.")
            self._database.execute("DELETE FROM entries WHERE place = ?", oldest)

    def _crowded(self, kind: str, tenant: str, limits: KindLimits) -> tuple[str, str] | None:
        """The tenant that has to give way, and why; None when all is within limits."""
        own, everyone = self._held(kind, tenant), self._held(kind, None)
        if own.documents > limits.tenant_documents:
            return tenant, f"{limits.tenant_documents:,} may be kept for each key"
        if own.bytes > limits.tenant_bytes:
            return tenant, f"{limits.tenant_bytes:,} bytes may be kept for each key"
        if everyone.documents > limits.documents:
            return self._heaviest(kind, "documents"), f"the server keeps {limits.documents:,}"
        if everyone.bytes > limits.total_bytes:
            return self._heaviest(kind, "bytes"), f"the server keeps {limits.total_bytes:,} bytes"
        return None

    def _heaviest(self, kind: str, by: Literal["documents", "bytes"]) -> str:
        asked = f"SELECT tenant FROM held WHERE kind = ? ORDER BY {by} DESC LIMIT 1"  # nosec B608 # one of two names
        row = self._one(asked, (kind,))
        assert row is not None
        return str(row[0])

    def _held(self, kind: str, tenant: str | None) -> Held:
        asked = "SELECT COALESCE(SUM(documents), 0), COALESCE(SUM(bytes), 0) FROM held WHERE kind = ?"
        row = self._one(asked, (kind,)) if tenant is None else self._one(f"{asked} AND tenant = ?", (kind, tenant))
        assert row is not None
        documents, size = row
        return Held(int(documents), int(size))

    def _place(self, kind: str, tenant: str, identity: str) -> int:
        row = self._one("SELECT place FROM entries WHERE kind = ? AND tenant = ? AND id = ?", (kind, tenant, identity))
        if row is None:
            raise InvalidRequest(f"after is {identity[:80]!r}, and there is no such {kind}", field="after")
        return int(row[0])

    def _one(self, asked: str, values: tuple[object, ...]) -> tuple[int | bytes | str, ...] | None:
        row: tuple[int | bytes | str, ...] | None = self._database.execute(asked, values).fetchone()
        return row

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """All that is written inside is written, or none of it."""
        with self._reading():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in _FULL:
                raise StoreFull(f"the server's disk is full ({error}); nothing was stored.") from error
            raise Unavailable(f"the server's store does not answer: {error}; try again.") from error


def _statements(script: str) -> Iterator[str]:
    """`executescript` would end the transaction, so the statements are run one by one."""
    pending = ""
    for line in script.strip().splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
