"""Every route that the router does not answer itself: the request as members get it, the answer as clients do."""

from contextlib import aclosing, suppress

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.core.errors import InvalidRequest, QuireError
from quire.core.http_connection import Headers
from quire.protocol.writer import Event
from quire.router.member import Member
from quire.router.prefix import Prefix, prefix_of
from quire.router.relay import Asked, Relayed
from quire.router.router import Router
from quire.server.caller import Caller
from quire.server.errors import NotFound, UnknownModel, error_body, speaks_anthropic
from quire.server.gate.gate import is_for_admins
from quire.server.gate.on_behalf import ON_BEHALF, behalf_header
from quire.server.router.credentials import credentials_of
from quire.server.router.stored import Stored, creates, stored_of
from quire.server.streams import encode_events, encode_lines, until_gone

_OURS = frozenset((
    b"x-request-id", b"x-request-deadline", b"x-quire-journal", b"x-quire-resume", b"x-quire-member", ON_BEHALF,
))  # fmt: skip
"""Headers of a request that the router writes itself."""
_DROPPED = frozenset((
    b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"date", b"server", b"x-request-id",
    b"x-quire-journal", b"trailer", b"upgrade",
))  # fmt: skip
_RATES = (b"x-ratelimit-", b"anthropic-ratelimit-")
_PIN = "x-quire-member"


async def relay(request: Request) -> Response:
    """Take it to a member and back."""
    router: Router = request.app.state.router
    caller: Caller = request.state.caller
    has_keys: bool = request.app.state.has_keys
    body = await request.body() if request.method in ("POST", "PUT", "PATCH") else None
    prefix = prefix_of(body) if body is not None and _is_json(request) else Prefix(tokens=len(body or b"") // 4)
    if has_keys:
        _check_model(prefix, caller, request.method)
        caller.account.check_tokens(prefix.tokens)
    headers = _headers(request, router, has_keys=has_keys)
    path = request.scope["path"]
    stored = stored_of(path, prefix)
    asked = Asked(
        "GET" if request.method == "HEAD" else request.method,  # whose answer says how long it is, and has no body
        _target(request.scope),
        headers,
        body,
        prefix,
        is_repeatable=not creates(path),
        deadline=caller.deadline,
        member=_pinned(request, router, caller) or await _holder(stored, router, headers),
    )
    relayed = await until_gone(request.receive, router.relay.relay(asked))
    return RelayedResponse(relayed, request, router, drop_rates=has_keys)


def _headers(request: Request, router: Router, *, has_keys: bool) -> Headers:
    headers = [(name, value) for name, value in request.scope["headers"] if name not in _OURS]
    headers.append((b"x-request-id", request.state.request_id.encode()))
    if has_keys:
        headers.append(behalf_header(request.state.caller))
    headers += router.headers or credentials_of(request.scope)
    return headers


def _is_json(request: Request) -> bool:
    return not request.headers.get("content-type", "").startswith("multipart/")


def _target(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (raw.partition(b"?")[0] + (b"?" + query if query else b"")).decode("latin-1")


def _check_model(prefix: Prefix, caller: Caller, method: str) -> None:
    """Raise UnknownModel where the key is for other models."""
    if caller.models is None or method != "POST":
        return
    if prefix.model is None:
        raise UnknownModel("this key is for some models only; name one of them as the body's `model`.")
    if prefix.model not in caller.models:
        raise UnknownModel(f"this key may not use the model {prefix.model[:200]!r}; ask for a key that may.")


def _pinned(request: Request, router: Router, caller: Caller) -> Member | None:
    """The member that an admin asks for by number or address."""
    name, path = request.headers.get(_PIN), request.scope["path"]
    if name is None and is_for_admins(path):
        raise InvalidRequest(f"{path} is about one instance; name it in the header {_PIN}, by number or address.")
    if name is None:
        return None
    if not caller.is_admin:
        raise InvalidRequest(f"the header {_PIN} is for keys with `admin: true`, or for the key of --api-key.")
    member = router.members.get(name)
    if member is None:
        raise NotFound(f"{name[:200]!r} is no member; /router/members lists them.")
    return member


async def _holder(stored: Stored | None, router: Router, headers: Headers) -> Member | None:
    """The member that has what the request is about; None: it is about nothing that one has alone."""
    if stored is None:
        return None
    asking = [(name, value) for name, value in headers if name not in (b"content-type", b"accept")]
    member = await router.holder(stored.identity, stored.target, asking)
    if member is None:
        raise NotFound(f"no instance has {stored.identity[:100]!r}; it may have been deleted, or its instance is away.")
    return member


class RelayedResponse(Response):
    """Sends what comes until its end, or until its client goes away."""

    def __init__(self, relayed: Relayed, request: Request, router: Router, *, drop_rates: bool) -> None:
        super().__init__()
        self.status_code = relayed.status
        self._relayed = relayed
        self._request = request
        self._router = router
        headers = [(name, value) for name, value in relayed.headers if name not in _DROPPED]
        if drop_rates:
            headers = [(name, value) for name, value in headers if not name.startswith(_RATES)]
        headers.append((b"x-quire-member", str(relayed.member.number).encode()))
        if relayed.pieces is None:
            headers.append((b"content-length", str(len(relayed.body)).encode()))
        self.raw_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._relayed.pieces is None:
            self._settle()
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._relayed.body, "more_body": False})
            return
        try:
            await until_gone(receive, self._send(send))
        except ClientDisconnect:
            pass
        finally:
            self._settle()

    async def _send(self, send: Send) -> None:
        assert self._relayed.pieces is not None
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._relayed.pieces) as pieces:
            try:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except QuireError as error:
                broken = self._broken(error)
                if broken is None:
                    raise  # only closing the connection can say that the answer is not whole
                await send({"type": "http.response.body", "body": broken, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _broken(self, error: QuireError) -> bytes | None:
        """What is said at the end of a stream that cannot go on, in its own shape."""
        kind = next((value for name, value in self._relayed.headers if name == b"content-type"), b"")
        path = self._request.scope["path"]
        body = error_body(error, self._request.state.request_id, path)
        if kind.startswith(b"text/event-stream"):
            return encode_events([Event(body, "error" if speaks_anthropic(path) else None)])
        return encode_lines([Event(body)]) if kind.startswith(b"application/x-ndjson") else None

    def _settle(self) -> None:
        """Charge for the tokens, and note who has what was stored."""
        relayed, account = self._relayed, self._request.state.caller.account
        if relayed.so_far is not None and relayed.so_far.prompt_tokens:
            account.charge(relayed.so_far.prompt_tokens + relayed.so_far.num_tokens)
        if relayed.pieces is not None or (relayed.so_far is not None and not self._creates):
            return
        told = _json(relayed.body)
        usage, identity = told.get("usage"), told.get("id")
        if relayed.so_far is None and isinstance(usage, dict) and isinstance(usage.get("total_tokens"), int):
            account.charge(usage["total_tokens"])
        if self._creates and isinstance(identity, str):
            self._router.remember(identity, relayed.member)

    @property
    def _creates(self) -> bool:
        path = self._request.scope["path"]
        return self._request.method == "POST" and (creates(path) or path == "/v1/responses")


def _json(body: bytes) -> dict[str, object]:
    """The object that an answer is; empty for any other."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = msgspec.json.decode(body)
        return told if isinstance(told, dict) else {}
    return {}
