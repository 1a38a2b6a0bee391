"""Credentials: the keys of clients as they came, for members that judge them; only where the router has no keys."""

from starlette.types import ASGIApp, Receive, Scope, Send

from quire.core.http_connection import Headers
from quire.server.gate.credentials import presented_key

_NAMES = (b"authorization", b"x-api-key")
_STATE = "credentials"


class KeepCredentials:
    """Stands before the gate, behind which no key is to be seen."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            kept = [(name, value) for name, value in scope["headers"] if name in _NAMES]
            if scope["type"] == "websocket" and not kept:
                key = presented_key(scope["headers"], socket=True)
                kept = [] if key is None else [(b"authorization", b"Bearer " + key)]
            scope.setdefault("state", {})[_STATE] = kept
        await self._app(scope, receive, send)


def credentials_of(scope: Scope) -> Headers:
    """Empty where they were not kept."""
    kept: Headers = scope["state"].get(_STATE, [])
    return kept
