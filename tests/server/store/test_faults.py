"""The store through kill -9, a full disk, a stalled one, and folders that cannot be used."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from quire.core.errors import ConfigError
from quire.protocol.ids import new_id
from quire.server.store.limits import BATCH, RESPONSE, StoreFull, StoreLimits
from quire.server.store.store import Store
from tests.server.store.small_store import content, names, put_all, upload


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


def test_fronts_that_start_together_share_a_new_store(tmp_path: Path) -> None:
    """Turning on SQLite's log of writes fails at once where another process does so too."""
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from quire.server.store.limits import StoreLimits\n"
        "from quire.server.store.rows import Rows\n"
        "folder = Path(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "for number in range(60):\n"
        "    Rows(folder / f'{number}.sqlite', StoreLimits()).close()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", program, str(tmp_path)]
    fronts = [
        subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for front in fronts:
        assert front.stdout is not None
        assert front.stdout.readline() == "ready\n"
    for front in fronts:
        assert front.stdin is not None
        front.stdin.write("go\n")
        front.stdin.flush()
    for front in fronts:
        front.communicate()
    assert [front.returncode for front in fronts] == [0] * 4


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
from quire.server.store.store import Store
from quire.protocol.ids import new_id
from quire.server.store.limits import RESPONSE

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
from quire.server.store.store import Store
from quire.protocol.ids import new_id
from quire.server.store.limits import RESPONSE, StoreFull

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
