"""A store in a folder of its own, small limits, and short ways to fill and read it."""

from quire.protocol.ids import new_id
from quire.server.store.limits import BATCH, BLOB, FILE, RESPONSE, KindLimits, StoreLimits
from quire.server.store.store import Page, Store

SMALL = KindLimits(documents=6, tenant_documents=4, total_bytes=600, tenant_bytes=400, item_bytes=200)
PASSING = KindLimits(6, 4, 600, 400, 200, oldest_go_first=True)
LIMITS = StoreLimits(kinds={RESPONSE: PASSING, FILE: SMALL, BATCH: SMALL, BLOB: SMALL}, free_bytes=0)


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
