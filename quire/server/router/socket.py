"""WebSockets through a router: one member has the whole socket. What it was asked does not go on elsewhere."""

import asyncio
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from quire.core.errors import Unavailable
from quire.core.http_connection import Headers
from quire.router.prefix import Prefix
from quire.router.router import Router
from quire.server.caller import Caller
from quire.server.gate.on_behalf import behalf_header
from quire.server.router.credentials import credentials_of

_REVOKED, _AWAY = 1008, 1013
_NEVER_SENT = (1005, 1006, 1015)
"""What a socket's own end is called where the other side said nothing."""


async def relay_socket(socket: WebSocket) -> None:
    """Join a client's socket with one to a member."""
    router: Router = socket.app.state.router
    caller: Caller = socket.state.caller
    headers = list(router.headers or credentials_of(socket.scope))
    if socket.app.state.has_keys:
        headers.append(behalf_header(caller))
    deadline = asyncio.get_running_loop().time() + router.config.outage_timeout
    member = await router.members.choose(Prefix(), (), deadline)
    with member.working(0):
        try:
            joined = await _connected(member.address.url, socket.url.path, headers, router)
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise Unavailable(f"the instance {member.address.url} took no socket: {error}", retry_after=1.0) from None
        await socket.accept()
        ends = [
            asyncio.create_task(_to_member(socket, joined)),
            asyncio.create_task(_to_client(joined, socket)),
            asyncio.create_task(caller.revoked.wait()),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            code, reason = joined.close_code or _AWAY, joined.close_reason or "the instance is gone"
            if ends[2].done():
                code, reason = _REVOKED, "the key no longer opens this"
            if not ends[0].done():
                with suppress(RuntimeError):  # the client was quicker
                    await socket.close(_AWAY if code in _NEVER_SENT else code, reason[:120])
        finally:
            for task in ends:
                task.cancel()
            await joined.close()


async def _connected(url: str, path: str, headers: Headers, router: Router) -> ClientConnection:
    return await connect(
        "ws" + url.removeprefix("http") + path,
        additional_headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers],
        max_size=int(router.config.max_body_mb * 2**20),
        open_timeout=router.config.connect_timeout,
        compression=None,
        proxy=None,
    )


async def _to_member(socket: WebSocket, joined: ClientConnection) -> None:
    """Until the client leaves."""
    with suppress(WebSocketDisconnect, ConnectionClosed):
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            await joined.send(message["bytes"] if text is None else text)


async def _to_client(joined: ClientConnection, socket: WebSocket) -> None:
    """Until the member leaves."""
    with suppress(ConnectionClosed, RuntimeError):
        async for message in joined:
            await (socket.send_text(message) if isinstance(message, str) else socket.send_bytes(message))
