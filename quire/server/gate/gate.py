"""The gate: what a request must pass before a route sees it. It finds out who asks, and leaves the answer as a Caller.

Routes are judged by the path that the router will read, never by the Host header. With keys every path needs one, but
for /health, /ready and /ping: whoever probes a server has no key.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.core.errors import InvalidRequest, Overloaded, QuireError, Unavailable
from quire.observe.logs import RequestLog
from quire.protocol.ignored import HEADER
from quire.server.caller import Caller
from quire.server.drain import Drain
from quire.server.errors import BodyTooLarge, Forbidden, HeadersTooLarge, Misdirected, Unauthorized, error_response
from quire.server.gate.account import Account
from quire.server.gate.bounded_body import BoundedBody
from quire.server.gate.credentials import accepted_subprotocol, only, presented_key, without_keys
from quire.server.gate.envelope import Envelope, HttpMetrics, send_response, unique_id
from quire.server.gate.hosts import check_host
from quire.server.gate.keys import Key, KeyRing
from quire.server.gate.origins import check_origin
from quire.server.gate.rate_headers import rate_headers
from quire.serving.validated import HEADER as SCHEMA_HEADER

_OPEN = ("/health", "/ready", "/ping")
_DEBUG = "/debug"
_ADMIN = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/sleep", "/wake_up", "/is_sleeping")
"""What else only admins may do."""
_DEADLINE = b"x-request-deadline"
_LONGEST_DEADLINE = 24 * 3600.0
_SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Caps:
    """How much of a request is read."""

    body_bytes: int = 32 * 2**20
    header_bytes: int = 64 * 2**10
    headers: int = 128


def guarded(
    app: ASGIApp,
    *,
    keys: KeyRing | None,
    drain: Drain,
    metrics: HttpMetrics,
    log: RequestLog,
    caps: Caps | None = None,
    origins: Sequence[str] = (),
    hosts: Collection[str] | None = None,
) -> ASGIApp:
    """The application with everything between the socket and its routes in front; `hosts` None: whatever its Host."""
    app = Gate(app, keys, drain, metrics, caps or Caps(), origins, hosts)
    if origins:
        # In front of the gate: a browser sends no key when it first asks whether it may send one.
        app = CORSMiddleware(
            app, allow_origins=origins, allow_methods=("GET", "POST", "DELETE"), allow_headers=("*",),
            expose_headers=("x-request-id", HEADER, SCHEMA_HEADER, "retry-after", "retry-after-ms"), max_age=600,
        )  # fmt: skip
    return Envelope(app, metrics, log)


class Gate:
    """Lets a request through to `app`, or answers it."""

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyRing | None,
        drain: Drain,
        metrics: HttpMetrics,
        caps: Caps,
        origins: Sequence[str] = (),
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._drain = drain
        self._metrics = metrics
        self._caps = caps
        self._origins = origins
        self._hosts = hosts
        self._everyone = Account()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        body = BoundedBody(receive, self._caps.body_bytes)
        account = self._everyone
        subprotocol = accepted_subprotocol(scope.get("subprotocols", ()))
        with ExitStack() as stack:
            try:
                caller = self._judge(scope)
                account = caller.account
                if scope["type"] == "http":
                    body.check_length(scope["headers"])
                stack.enter_context(self._working(scope, account))
            except QuireError as error:
                await self._refuse(error, body, scope, self._sender(account, subprotocol, send))
                return
            scope["state"]["caller"] = caller
            bounded = body.receive if scope["type"] == "http" else receive
            await self._app(scope, bounded, self._sender(account, subprotocol, send))

    async def _refuse(self, error: QuireError, body: BoundedBody, scope: Scope, send: Send) -> None:
        self._count_refusal(error)
        asks_first = any(name == b"expect" for name, _ in scope["headers"])  # and has sent nothing of its body yet
        if isinstance(error, BodyTooLarge) and not asks_first:
            await body.linger()
        response = error_response(error, scope["state"]["request_id"], scope["path"])
        await send_response(response, scope, body.receive, send)

    def _judge(self, scope: Scope) -> Caller:
        """Who asks, or an error that says what is wrong with the request."""
        headers = scope["headers"]
        self._check_headers(headers)
        check_host(headers, self._hosts)
        if scope["type"] == "websocket" or scope["method"] not in _SAFE:
            check_origin(headers, self._origins)
        key = self._key(scope)
        path = scope["path"]
        if (_is_debug(path) or path in _ADMIN) and not (key is not None and key.admin):
            what = path if path in _ADMIN else _DEBUG
            raise Forbidden(f"{what} is for keys with `admin: true`, or for the key of --api-key.")
        identity, deadline = unique_id(scope), _deadline(only(headers, _DEADLINE))
        scope["headers"] = without_keys(headers)
        scope.pop("subprotocols", None)
        if key is None or self._keys is None:
            return Caller(identity, self._everyone, deadline=deadline)
        return Caller(
            identity,
            self._keys.account(key),
            tenant=key.name,
            priority=key.priority,
            cache_salt=key.cache_salt,
            models=key.models,
            is_admin=key.admin,
            revoked=self._keys.revoked(key),
            deadline=deadline,
        )

    def _check_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        size = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > self._caps.headers or size > self._caps.header_bytes:
            raise HeadersTooLarge(
                f"the request has {len(headers)} headers of {size:,} bytes, and the server takes {self._caps.headers} "
                f"of {self._caps.header_bytes:,}; send fewer, or raise --max-header-kb."
            )

    def _key(self, scope: Scope) -> Key | None:
        """The request's key; None where none is needed."""
        if self._keys is None or scope["path"] in _OPEN:
            return None
        headers = scope["headers"]
        presented = presented_key(headers, socket=scope["type"] == "websocket")
        key = self._keys.find(presented) if presented else None
        if key is None:
            wrong = "this API key is not one of the server's" if presented else "this server needs an API key"
            page = any(name == b"accept" and b"text/html" in value for name, value in headers)
            raise Unauthorized(f"{wrong}; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.", page=page)
        return key

    @contextmanager
    def _working(self, scope: Scope, account: Account) -> Iterator[None]:
        """Work is counted until its answer is sent. A socket is no work itself: its route counts what it is asked."""
        if scope["type"] == "websocket":
            self._drain.check()
            yield
        elif scope["method"] == "POST" and not _is_debug(scope["path"]):
            with self._drain.work(), account.request():
                yield
        else:
            yield

    def _sender(self, account: Account, subprotocol: str | None, send: Send) -> Send:
        async def sender(message: Message) -> None:
            kind = message["type"]
            if kind in ("http.response.start", "websocket.http.response.start"):
                headers = [*message.get("headers", ()), *rate_headers(account)]
                if self._drain.begun and (b"connection", b"close") not in headers:
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            elif kind == "websocket.accept" and not message.get("subprotocol"):
                message = {**message, "subprotocol": subprotocol}
            await send(message)

        return sender

    def _count_refusal(self, error: QuireError) -> None:
        kinds = {
            Unauthorized: "key",
            Forbidden: "forbidden",
            Misdirected: "host",
            Overloaded: "limit",
            Unavailable: "draining",
        }
        self._metrics.refused(kinds.get(type(error), "invalid"))


def _is_debug(path: str) -> bool:
    return path == _DEBUG or path.startswith(_DEBUG + "/")


def _deadline(value: bytes | None) -> float | None:
    """Seconds from X-Request-Deadline."""
    if value is None:
        return None
    try:
        seconds = float(value.decode("ascii")) if len(value) <= 32 else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _LONGEST_DEADLINE:  # not so for NaN either
        raise InvalidRequest(
            f"X-Request-Deadline is {value[:32].decode('latin-1')!r}, but it must be seconds, more than 0 and at most "
            f"{_LONGEST_DEADLINE:g}.",
            field="X-Request-Deadline",
        )
    return seconds
