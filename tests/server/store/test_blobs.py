"""The store's files over a real folder: streamed both ways, whole or not there at all, within bounds."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.ids import new_id
from quire.server.store.limits import StoreFull
from quire.server.store.store import Store
from tests.server.store.small_store import LIMITS, content, upload


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store")
    yield store
    store.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "small", LIMITS)
    yield store
    store.close()


def test_file_is_streamed_both_ways(store: Store) -> None:
    async def scenario() -> None:
        identity = new_id("file-")
        async with store.write_blob("a", identity) as blob:
            for number in range(300):
                await blob.write(bytes([number % 251]) * 10_000)
            assert not await store.has_blob("a", identity)  # not before it is whole
        assert blob.size == 3_000_000
        assert await content(store, "a", identity, 1 << 16) == b"".join(bytes([n % 251]) * 10_000 for n in range(300))
        with pytest.raises(InvalidRequest, match="written once"):
            await upload(store, "a", b"again", identity)
        assert await store.delete_blob("a", identity)
        assert await content(store, "a", identity) == b""

    asyncio.run(scenario())


def test_file_that_is_deleted_while_it_is_read_is_read_to_its_end(store: Store) -> None:
    async def scenario() -> None:
        identity = await upload(store, "a", b"0123456789")
        chunks = store.read_blob("a", identity, 4)
        assert await anext(chunks) == b"0123"
        await store.delete_blob("a", identity)
        assert b"".join([chunk async for chunk in chunks]) == b"456789"

    asyncio.run(scenario())


def test_upload_that_fails_or_does_not_fit_leaves_nothing(tmp_path: Path, small: Store) -> None:
    async def failing(error: BaseException) -> None:
        async with small.write_blob("a", new_id("file-")) as blob:
            await blob.write(b"x" * 100)
            await blob.flush()
            raise error

    async def scenario() -> None:
        for error in (RuntimeError("no"), asyncio.CancelledError()):
            with pytest.raises(type(error)):
                await failing(error)
        with pytest.raises(StoreFull, match="larger than the 200 bytes"):
            await upload(small, "a", b"x" * 201)
        await upload(small, "a", b"x" * 200)
        await upload(small, "a", b"x" * 150)
        with pytest.raises(StoreFull, match="50 bytes are left"):
            await upload(small, "a", b"x" * 60)
        await upload(small, "a", b"x" * 50)

    asyncio.run(scenario())
    assert sorted(path.stat().st_size for path in (tmp_path / "small/files").iterdir()) == [50, 150, 200]


def test_uploads_at_the_same_time_share_the_room(small: Store) -> None:
    async def scenario() -> None:
        async with small.write_blob("a", new_id("file-")) as first:
            await first.write(b"x" * 200)
            await first.flush()
            async with small.write_blob("a", new_id("file-")) as second:
                await second.write(b"x" * 200)
                await second.flush()
                with pytest.raises(StoreFull, match="no room"):
                    await upload(small, "a", b"x")
                await upload(small, "b", b"x" * 200)

    asyncio.run(scenario())
