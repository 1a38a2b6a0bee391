"""The store over a real folder: tenants apart, bounds kept, and nothing lost to kill -9 or a full disk."""

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import ConfigError, InvalidRequest, QuireError
from quire.server.store import Page, Store
from quire.server.store_limits import BATCH, BLOB, FILE, RESPONSE, KindLimits, StoreFull, StoreLimits, is_id, new_id

SMALL = KindLimits(documents=6, tenant_documents=4, total_bytes=600, tenant_bytes=400, item_bytes=200)
PASSING = KindLimits(6, 4, 600, 400, 200, oldest_go_first=True)
LIMITS = StoreLimits(kinds={RESPONSE: PASSING, FILE: SMALL, BATCH: SMALL, BLOB: SMALL}, free_bytes=0)


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


def names(page: Page) -> list[str]:
    return [document["name"] for document in page.documents]


async def put_all(store: Store, kind: str, tenant: str, *called: str) -> list[str]:
    ids = [new_id("resp_") for _ in called]
    for identity, name in zip(ids, called, strict=True):
        await store.put(kind, tenant, identity, {"name": name, "id": identity})
    return ids


async def upload(store: Store, tenant: str, data: bytes, identity: str | None = None) -> str:
    identity = identity or new_id("file-")
    async with store.write_blob(tenant, identity) as blob:
        await blob.write(data)
    return identity


async def content(store: Store, tenant: str, identity: str, chunk_bytes: int = 7) -> bytes:
    return b"".join([chunk async for chunk in store.read_blob(tenant, identity, chunk_bytes)])


def test_document_comes_back_and_can_be_replaced_and_deleted(store: Store) -> None:
    async def scenario() -> None:
        identity = new_id("resp_")
        await store.put(RESPONSE, "a", identity, {"text": "ein schöner Tag", "n": [1, None, 2.5]})
        assert await store.get(RESPONSE, "a", identity) == {"text": "ein schöner Tag", "n": [1, None, 2.5]}
        await store.put(RESPONSE, "a", identity, {"text": "other"})
        assert await store.get(RESPONSE, "a", identity) == {"text": "other"}
        assert await store.delete(RESPONSE, "a", identity)
        assert await store.get(RESPONSE, "a", identity) is None
        assert not await store.delete(RESPONSE, "a", identity)

    asyncio.run(scenario())


def test_tenants_and_kinds_never_see_each_other(store: Store) -> None:
    async def scenario() -> None:
        (identity,) = await put_all(store, RESPONSE, "a", "mine")
        blob = await upload(store, "a", b"secret")
        for kind, tenant in ((RESPONSE, "b"), (FILE, "a")):
            assert await store.get(kind, tenant, identity) is None
            assert not await store.delete(kind, tenant, identity)
            assert names(await store.list(kind, tenant)) == []
        with pytest.raises(InvalidRequest, match="no such response"):
            await store.list(RESPONSE, "b", after=identity)
        assert not await store.has_blob("b", blob)
        assert await content(store, "b", blob) == b""
        assert not await store.delete_blob("b", blob)
        assert await store.get(RESPONSE, "a", identity) is not None
        assert await content(store, "a", blob) == b"secret"

    asyncio.run(scenario())


def test_pages_follow_each_other_in_both_orders(store: Store) -> None:
    async def scenario() -> None:
        ids = await put_all(store, FILE, "a", "0", "1", "2", "3", "4")
        await put_all(store, FILE, "b", "other")
        await store.put(FILE, "a", ids[0], {"name": "0 changed", "id": ids[0]})  # keeps its place
        first = await store.list(FILE, "a", limit=2)
        assert (names(first), first.has_more) == (["4", "3"], True)
        second = await store.list(FILE, "a", after=ids[3], limit=3)
        assert (names(second), second.has_more) == (["2", "1", "0 changed"], False)
        upwards = await store.list(FILE, "a", after=ids[0], limit=2, order="asc")
        assert (names(upwards), upwards.has_more) == (["1", "2"], True)
        assert names(await store.list(FILE, "a", where={"name": "3"})) == ["3"]
        for after in ("resp_" + "0" * 48, "../../etc/passwd", "\ud800"):
            with pytest.raises(InvalidRequest) as refused:
                await store.list(FILE, "a", after=after)
            assert refused.value.field == "after"

    asyncio.run(scenario())


def test_what_is_put_soon_is_there_for_the_next_reader(store: Store) -> None:
    async def scenario() -> None:
        ids = [new_id("resp_") for _ in range(50)]
        for place, identity in enumerate(ids):
            store.put_soon(RESPONSE, "a", identity, {"place": place})
            assert await store.get(RESPONSE, "a", identity) == {"place": place}

    asyncio.run(scenario())


def test_oldest_responses_make_room_and_the_heaviest_tenant_gives_way(small: Store) -> None:
    async def scenario() -> None:
        await put_all(small, RESPONSE, "light", "l0", "l1")
        await put_all(small, RESPONSE, "heavy", "h0", "h1", "h2", "h3")
        await put_all(small, RESPONSE, "heavy", "h4")  # five of a tenant's four
        assert names(await small.list(RESPONSE, "heavy")) == ["h4", "h3", "h2", "h1"]
        await put_all(small, RESPONSE, "third", "t0")  # seven of six in all
        assert names(await small.list(RESPONSE, "light")) == ["l1", "l0"]
        assert names(await small.list(RESPONSE, "heavy")) == ["h4", "h3", "h2"]

    asyncio.run(scenario())


def test_responses_make_room_by_bytes_too(small: Store) -> None:
    async def scenario() -> None:
        for name in "abcd":
            await put_all(small, RESPONSE, "a", name * 80)  # some 150 bytes each; 400 are allowed
        assert [name[0] for name in names(await small.list(RESPONSE, "a"))] == ["d", "c"]
        with pytest.raises(StoreFull, match="200 that are stored as one"):
            await put_all(small, RESPONSE, "a", "x" * 300)
        assert len((await small.list(RESPONSE, "a")).documents) == 2

    asyncio.run(scenario())


def test_other_kinds_are_refused_when_full_and_keep_what_they_have(small: Store) -> None:
    async def scenario() -> None:
        ids = await put_all(small, FILE, "a", "0", "1", "2", "3")
        with pytest.raises(StoreFull, match="no room for another file: 4 may be kept"):
            await put_all(small, FILE, "a", "4")
        assert names(await small.list(FILE, "a")) == ["3", "2", "1", "0"]
        await small.delete(FILE, "a", ids[0])
        await put_all(small, FILE, "a", "4")

    asyncio.run(scenario())


@given(sizes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 150)), max_size=30))
def test_bounds_hold_after_any_puts(tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[str, int]]) -> None:
    async def scenario(store: Store) -> None:
        for tenant, size in sizes:
            await put_all(store, RESPONSE, tenant, "x" * (size // 2))
        found = {tenant: (await store.list(RESPONSE, tenant, limit=100)).documents for tenant in "abc"}
        assert all(len(documents) <= 4 for documents in found.values())
        assert sum(len(documents) for documents in found.values()) <= 6
        if sizes:  # the newest is never the one to go
            assert found[sizes[-1][0]]

    store = Store(tmp_path_factory.mktemp("any"), LIMITS)
    try:
        asyncio.run(scenario(store))
    finally:
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


@pytest.mark.parametrize("hostile", ["../../x", "", "resp_", "resp_" + "0" * 500, "resp_\0" + "0" * 48, "\ud800", "."])
def test_hostile_ids_are_no_documents(store: Store, hostile: str) -> None:
    async def scenario() -> None:
        assert await store.get(RESPONSE, "a", hostile) is None
        assert not await store.delete(RESPONSE, "a", hostile)
        assert not await store.has_blob("a", hostile)
        with pytest.raises(QuireError, match="new_id"):
            await store.put(RESPONSE, "a", hostile, {})
        with pytest.raises(QuireError, match="new_id"):
            await upload(store, "a", b"", hostile) if hostile else await store.put(RESPONSE, "a", "", {})

    asyncio.run(scenario())


def test_ids_cannot_be_guessed() -> None:
    made = {new_id("file-") for _ in range(1000)}
    assert len(made) == 1000
    assert all(is_id(identity) and re.fullmatch("file-[0-9a-f]{48}", identity) for identity in made)


def test_everything_is_there_after_a_restart_and_half_files_are_gone(tmp_path: Path) -> None:
    async def fill(store: Store) -> tuple[str, str]:
        (identity,) = await put_all(store, BATCH, "a", "kept")
        return identity, await upload(store, "a", b"kept")

    async def look(store: Store, identity: str, blob: str) -> None:
        assert names(await store.list(BATCH, "a")) == ["kept"]
        assert await store.every(BATCH) == [("a", identity)]
        assert await content(store, "a", blob) == b"kept"

    store = Store(tmp_path)
    identity, blob = asyncio.run(fill(store))
    store.close()
    (tmp_path / "files/0123.part").write_bytes(b"half")
    (tmp_path / "files/4567").write_bytes(b"placed, but its row was never written")
    store = Store(tmp_path)
    asyncio.run(look(store, identity, blob))
    assert len(list((tmp_path / "files").iterdir())) == 1
    store.close()


def test_start_leaves_the_uploads_of_a_server_beside_it_alone(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        identity = new_id("file-")
        async with store.write_blob("a", identity) as blob:
            await blob.write(b"going on")
            await blob.flush()
            Store(tmp_path).close()
        assert await content(store, "a", identity) == b"going on"

    store = Store(tmp_path)
    asyncio.run(scenario(store))
    store.close()


WRITE_UNTIL_KILLED = """
import asyncio, sys
from pathlib import Path
from quire.server.store import Store
from quire.server.store_limits import RESPONSE, new_id

async def main():
    store = Store(Path(sys.argv[1]))
    upload = store.write_blob("a", new_id("file-"))
    blob = await upload.__aenter__()
    await blob.write(b"x" * (1 << 20))
    for number in range(100_000):
        identity = new_id("resp_")
        await store.put(RESPONSE, "a", identity, {"text": str(number) * 50})
        print(identity, flush=True)

asyncio.run(main())
"""


def test_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITE_UNTIL_KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline().strip() for _ in range(40)]
        child.send_signal(signal.SIGKILL)
        acknowledged += [line.strip() for line in child.stdout if line.endswith("\n")]

    async def look(store: Store) -> None:
        for number, identity in enumerate(acknowledged):
            assert await store.get(RESPONSE, "a", identity) == {"text": str(number) * 50}

    store = Store(tmp_path)
    asyncio.run(look(store))
    store.close()
    assert list((tmp_path / "files").iterdir()) == []


def test_half_written_log_of_the_database_costs_only_what_was_not_acknowledged(tmp_path: Path) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"
    store = Store(folder)
    ids = asyncio.run(put_all(store, RESPONSE, "a", "first", "second"))
    copy.mkdir()
    for name in ("store.sqlite", "store.sqlite-wal"):
        (copy / name).write_bytes((folder / name).read_bytes())
    with (copy / "store.sqlite-wal").open("ab") as log:
        log.write(os.urandom(5000))  # a frame that the power cut off
    store.close()

    async def look(store: Store) -> None:
        assert names(await store.list(RESPONSE, "a")) == ["second", "first"]
        assert await store.delete(RESPONSE, "a", ids[0])

    broken = Store(copy)
    asyncio.run(look(broken))
    broken.close()


FILL_A_SMALL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from quire.server.store import Store
from quire.server.store_limits import RESPONSE, StoreFull, new_id

async def main():
    store = Store(Path(sys.argv[1]))
    kept = new_id("resp_")
    await store.put(RESPONSE, "a", kept, {"text": "kept"})
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    for _ in range(2):
        try:
            await store.put(RESPONSE, "a", new_id("resp_"), {"text": "x" * 1_000_000})
        except StoreFull as error:
            print("document:", error)
        blob = new_id("file-")
        try:
            async with store.write_blob("a", blob) as writer:
                await writer.write(b"x" * 3_000_000)
        except StoreFull as error:
            print("file:", error)
        assert not await store.has_blob("a", blob)
        assert await store.get(RESPONSE, "a", kept) == {"text": "kept"}
    store.put_soon(RESPONSE, "a", new_id("resp_"), {"text": "x" * 1_000_000})
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.put(RESPONSE, "a", new_id("resp_"), {"text": "x" * 1_000_000})
    assert len((await store.list(RESPONSE, "a")).documents) in (2, 3)
    store.close()

asyncio.run(main())
"""


def test_full_disk_is_an_error_that_says_so_and_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILL_A_SMALL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("document: the server's disk is full") == 2
    assert done.stdout.count("file: the server's disk is full") == 2
    assert list((tmp_path / "files").iterdir()) == []


def test_room_that_the_disk_must_keep_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(StoreFull, match="bytes are free"):
            await store.check_room()
        with pytest.raises(StoreFull, match="bytes are free"):
            await put_all(store, RESPONSE, "a", "x")
        with pytest.raises(StoreFull, match="bytes are free"):
            await upload(store, "a", b"x")

    store = Store(tmp_path, StoreLimits(free_bytes=1 << 62))
    asyncio.run(scenario(store))
    store.close()


def test_disk_that_is_too_far_behind_takes_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: Store) -> None:
        other = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # a disk that does not get on
        ids = [new_id("resp_") for _ in range(4)]
        for identity in ids:
            store.put_soon(RESPONSE, "a", identity, {})
        with pytest.raises(StoreFull, match="too slow"):
            await store.check_room()
        other.execute("ROLLBACK")
        other.close()
        found = [await store.get(RESPONSE, "a", identity) for identity in ids]
        assert found == [{}, {}, {}, None]
        await store.check_room()

    store = Store(tmp_path, StoreLimits(unwritten=3))
    asyncio.run(scenario(store))
    store.close()
    assert "too far behind" in caplog.text


def test_what_was_deleted_is_not_in_the_file(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        (identity,) = await put_all(store, RESPONSE, "a", "a very private matter")
        await store.delete(RESPONSE, "a", identity)

    store = Store(tmp_path)
    asyncio.run(scenario(store))
    store.close()
    assert b"very private" not in (tmp_path / "store.sqlite").read_bytes()


@pytest.mark.parametrize("broken", ["garbage", "newer", "folder"])
def test_store_that_cannot_be_used_says_what_to_do(tmp_path: Path, broken: str) -> None:
    if broken == "garbage":
        (tmp_path / "store.sqlite").write_bytes(b"this is no database" * 1000)
    elif broken == "newer":
        database = sqlite3.connect(tmp_path / "store.sqlite")
        database.execute("PRAGMA user_version = 99")
        database.close()
    else:
        (tmp_path / "files").write_bytes(b"a file where the folder should be")
    with pytest.raises(ConfigError, match=r"move it away|choose another"):
        Store(tmp_path)
