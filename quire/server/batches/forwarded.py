"""ForwardedBatches: one front runs all batches of a server; the others ask it about them."""

import time
from collections.abc import Awaitable, Callable

import msgspec

from quire.server.batches.desk import BatchDesk
from quire.server.batches.record import BatchRecord
from quire.server.store.files import Files
from quire.server.store.store import Order

Forward = Callable[["Question"], Awaitable[msgspec.Raw]]


class _Question(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Create(_Question, frozen=True):
    record: BatchRecord


class Get(_Question, frozen=True):
    tenant: str
    identity: str


class GetPage(_Question, frozen=True):
    tenant: str
    after: str | None
    limit: int
    order: Order


class Cancel(_Question, frozen=True):
    tenant: str
    identity: str


class ReaderOf(_Question, frozen=True):
    tenant: str
    file_id: str


Question = Create | Get | GetPage | Cancel | ReaderOf
_RECORD: msgspec.msgpack.Decoder[BatchRecord] = msgspec.msgpack.Decoder(BatchRecord)
_PAGE: msgspec.msgpack.Decoder[tuple[list[BatchRecord], bool]] = msgspec.msgpack.Decoder(tuple[list[BatchRecord], bool])
_READER: msgspec.msgpack.Decoder[str | None] = msgspec.msgpack.Decoder(str | None)
_QUESTION: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)


class ForwardedBatches:
    """A BatchDesk whose batches run elsewhere. Files are in the store, which all fronts reach."""

    def __init__(
        self, forward: Forward, files: Files, endpoints: tuple[str, ...], clock: Callable[[], float] = time.time
    ) -> None:
        self.files = files
        self.clock = clock
        self.endpoints = endpoints
        self._forward = forward

    async def create(self, record: BatchRecord) -> BatchRecord:
        return _RECORD.decode(await self._forward(Create(record)))

    async def get(self, tenant: str, identity: str) -> BatchRecord:
        return _RECORD.decode(await self._forward(Get(tenant, identity)))

    async def page(self, tenant: str, *, after: str | None, limit: int, order: Order) -> tuple[list[BatchRecord], bool]:
        return _PAGE.decode(await self._forward(GetPage(tenant, after, limit, order)))

    async def cancel(self, tenant: str, identity: str) -> BatchRecord:
        return _RECORD.decode(await self._forward(Cancel(tenant, identity)))

    async def reader_of(self, tenant: str, file_id: str) -> str | None:
        return _READER.decode(await self._forward(ReaderOf(tenant, file_id)))


async def answer_question(batches: BatchDesk, asked: msgspec.Raw) -> object:
    """Where the batches run: what another front wants to know."""
    match _QUESTION.decode(asked):
        case Create(record):
            return await batches.create(record)
        case Get(tenant, identity):
            return await batches.get(tenant, identity)
        case GetPage(tenant, after, limit, order):
            return await batches.page(tenant, after=after, limit=limit, order=order)
        case Cancel(tenant, identity):
            return await batches.cancel(tenant, identity)
        case ReaderOf(tenant, file_id):
            return await batches.reader_of(tenant, file_id)
