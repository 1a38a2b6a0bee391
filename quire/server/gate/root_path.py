"""RootPath: the whole server under a path of its own, for proxies that pass paths on as they come.

`/llm/v1/models` is then what `/v1/models` is, which stays: a probe does not know of the proxy.
"""

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class RootPath:
    """Takes the path away before anything else looks at it: the gate, too, knows routes by their own names."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path
        self._prefix = path + "/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope.get("path", "")
        if asked == self._path and scope["type"] == "http":
            # the console's own links are relative to where it is
            await RedirectResponse(self._prefix)(scope, receive, send)
            return
        if asked.startswith(self._prefix):
            raw = scope.get("raw_path") or asked.encode()
            scope = {**scope, "path": asked[len(self._path) :], "raw_path": raw[len(self._path.encode()) :]}
        await self._app(scope, receive, send)
