"""/v1/files and /v1/batches on a real store, with answers that a test controls in place of a model."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from quire.server.batches.record import Sender
from quire.server.batches.runner import Batches
from quire.server.caller import Caller
from quire.server.errors import exception_handlers
from quire.server.gate.account import Account
from quire.server.openai.batches import OPERATIONS as BATCHES
from quire.server.openai.files import OPERATIONS as FILES
from quire.server.store.store import Store

CHAT = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Answerer:
    """Answers every body with itself, remembers whom it answered, and does first what a test wants."""

    first: Callable[[dict[str, Any]], Awaitable[None]] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    senders: list[Sender] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    async def __call__(self, body: dict[str, Any], sender: Sender, request_id: str) -> dict[str, Any]:
        self.asked.append(body)
        self.senders.append(sender)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.first is not None:
                await self.first(body)
            else:
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        return {"echo": body}


class AsTenant:
    """Stands in for the gate: the header x-tenant says who is asking."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tenant = dict(scope["headers"]).get(b"x-tenant", b"default").decode()
        scope.setdefault("state", {})["caller"] = Caller("req-1", Account(), tenant=tenant, cache_salt=f"of {tenant}")
        await self._app(scope, receive, send)


@asynccontextmanager
async def storing(
    folder: Path, answerer: Answerer | None = None, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A server over `folder` from its start to its end; its runner is `client.batches`."""
    store = Store(folder / "store")
    batches = Batches(store, folder / "batches", {CHAT: answerer or Answerer()}, clock=clock or Clock(), **settings)
    app = Starlette(
        routes=[Route(one.path, one.handler, methods=[one.method]) for one in (*FILES, *BATCHES)],
        exception_handlers=exception_handlers(),
    )
    app.state.batches = batches
    try:
        await batches.start()
        transport = httpx.ASGITransport(AsTenant(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            client.batches = batches  # type: ignore[attr-defined]
            yield client
    finally:
        await batches.close()
        store.close()


async def upload(
    client: httpx.AsyncClient, content: bytes, *, tenant: str = "default", **fields: Any
) -> httpx.Response:
    return await client.post(
        "/v1/files",
        files={"file": ("in.jsonl", content)},
        data={"purpose": "batch"} | fields,
        headers={"x-tenant": tenant},
    )


def request_line(custom_id: str, **body: Any) -> bytes:
    line = {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": {"name": custom_id} | body}
    return json.dumps(line).encode() + b"\n"


async def start_batch(client: httpx.AsyncClient, content: bytes, **fields: Any) -> dict[str, Any]:
    file = (await upload(client, content)).json()
    asked = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"} | fields
    answer = await client.post("/v1/batches", json=asked)
    assert answer.status_code == 200, answer.text
    batch: dict[str, Any] = answer.json()
    return batch


async def reach(client: httpx.AsyncClient, batch_id: str, *statuses: str) -> dict[str, Any]:
    """The batch once it has come to one of `statuses`."""
    while True:
        batch: dict[str, Any] = (await client.get(f"/v1/batches/{batch_id}")).json()
        if batch["status"] in statuses:
            return batch
        assert batch["status"] not in ENDED, batch
        await asyncio.sleep(0.005)  # asking in-process gives nobody else a turn, the threads of the store least of all


async def results(client: httpx.AsyncClient, file_id: str | None) -> list[dict[str, Any]]:
    content = (await client.get(f"/v1/files/{file_id}/content")).content
    return [json.loads(line) for line in content.splitlines()]
