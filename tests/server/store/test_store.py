"""The store's documents over a real folder: tenants apart, pages in order, bounds kept."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import InvalidRequest, QuireError
from quire.protocol.ids import is_id, new_id
from quire.server.store.limits import FILE, RESPONSE, StoreFull
from quire.server.store.store import Store
from tests.server.store.small_store import LIMITS, content, names, put_all, upload


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


def test_those_that_wait_together_do_not_fail_together(small: Store, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        ids = [new_id("resp_") for _ in range(3)]
        for identity, text in zip(ids, ("a", "x" * 300, "b"), strict=True):
            small.put_soon(RESPONSE, "a", identity, {"name": text})
        await small.flush()
        assert names(await small.list(RESPONSE, "a")) == ["b", "a"]
        assert f"response {ids[1]} is not stored" in caplog.text

    asyncio.run(scenario())


def test_what_comes_after_the_end_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path)
    first, late = new_id("resp_"), new_id("resp_")
    store.put_soon(RESPONSE, "a", first, {"name": "waiting when it closes"})
    store.close()
    store.put_soon(RESPONSE, "a", late, {})
    assert f"{late} is not stored: the server is on its way out" in caplog.text
    again = Store(tmp_path)
    assert names(asyncio.run(again.list(RESPONSE, "a"))) == ["waiting when it closes"]
    again.close()


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
