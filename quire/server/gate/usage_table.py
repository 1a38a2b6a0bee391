"""UsageTable: what tenants have used, in memory that all fronts of a server share, so that limits hold over all.

A record a tenant: its name's digest, what it has used of each limit and since when, and how many requests each front
runs for it. Records are locked one by one with the system's own locks, which end with the process that holds them.
"""

import fcntl
import hashlib
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quire.config.server import MOST_FRONTS
from quire.core.errors import ConfigError

MOST_TENANTS = 1 << 16
_DIGEST = 16
_BUCKET = struct.Struct("<dd")
_RUNNING = struct.Struct("<I")
_ALL_RUNNING = struct.Struct(f"<{MOST_FRONTS}I")
_BUCKETS_AT = _DIGEST
_RUNNING_AT = _BUCKETS_AT + 2 * _BUCKET.size
_RECORD = _RUNNING_AT + MOST_FRONTS * _RUNNING.size
_NOBODY = bytes(_DIGEST)


class UsageTable:
    """One front's way to the table; records are given out in the order in which tenants first come."""

    def __init__(self, path: Path, front: int = 0) -> None:
        self._file = path.open("r+b")
        self.memory = mmap.mmap(self._file.fileno(), 0)
        self.front = front
        self._places: dict[bytes, int] = {}
        self._known = 0
        """Records that have been looked at: all of them are taken, and in `_places`."""

    @classmethod
    def create(cls, path: Path) -> "UsageTable":
        """An empty table in a new file; what is not used of it takes no room."""
        with path.open("xb") as file:
            file.truncate((1 + MOST_TENANTS) * _RECORD)  # the first record only guards the giving out of others
        return cls(path)

    def close(self) -> None:
        """For this process; others go on."""
        self.memory.close()
        self._file.close()

    def of(self, tenant: str) -> "TenantUsage":
        return TenantUsage(self, tenant)

    def clear(self, front: int) -> None:
        """A front is gone, and the requests it ran."""
        self._learn()
        for place in self._places.values():
            with self.lock(place):
                _RUNNING.pack_into(self.memory, place + _RUNNING_AT + front * _RUNNING.size, 0)

    def place(self, tenant: str) -> int:
        """Where a tenant's record begins; it gets one if it has none."""
        digest = hashlib.blake2b(tenant.encode(), digest_size=_DIGEST).digest()
        if digest not in self._places:
            with self.lock(0):
                self._learn()
                if digest not in self._places:
                    self._give_out(digest)
        return self._places[digest]

    @contextmanager
    def lock(self, place: int) -> Iterator[None]:
        """Nobody else reads or writes the record meanwhile."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, place)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)

    def _give_out(self, digest: bytes) -> None:
        if self._known == MOST_TENANTS:
            raise ConfigError(f"more than {MOST_TENANTS:,} tenants have limits; --api-server-count 1 has no such bound")
        place = (1 + self._known) * _RECORD
        self.memory[place : place + _DIGEST] = digest
        self._learn()

    def _learn(self) -> None:
        """Take note of records that other fronts have given out."""
        while self._known < MOST_TENANTS:
            place = (1 + self._known) * _RECORD
            digest = self.memory[place : place + _DIGEST]
            if digest == _NOBODY:
                return
            self._places[digest] = place
            self._known += 1


class TenantUsage:
    """One tenant's record. It is made when it is first needed: most tenants have no limits."""

    def __init__(self, table: UsageTable, tenant: str) -> None:
        self._table = table
        self._tenant = tenant
        self._place = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """To be held around all that follows: nobody else reads or changes the record meanwhile."""
        self._place = self._place or self._table.place(self._tenant)
        with self._table.lock(self._place):
            yield

    def bucket(self, index: int) -> tuple[float, float]:
        """What was used of a limit, and when that was so."""
        used, then = _BUCKET.unpack_from(self._table.memory, self._place + _BUCKETS_AT + index * _BUCKET.size)
        return used, then

    def put_bucket(self, index: int, used: float, then: float) -> None:
        _BUCKET.pack_into(self._table.memory, self._place + _BUCKETS_AT + index * _BUCKET.size, used, then)

    def put_running(self, count: int) -> None:
        """How many requests this front runs."""
        _RUNNING.pack_into(self._table.memory, self._place + _RUNNING_AT + self._table.front * _RUNNING.size, count)

    def running(self) -> int:
        """Requests on all fronts."""
        return sum(_ALL_RUNNING.unpack_from(self._table.memory, self._place + _RUNNING_AT))
