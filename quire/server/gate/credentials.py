"""Which key a request presents: read from its headers alone, as bytes, so that no spelling of a key can raise."""

import base64
import binascii
from collections.abc import Iterable, Sequence

from quire.core.errors import InvalidRequest

SUBPROTOCOL = "quire.key."
"""Browsers cannot set a header on a WebSocket; they name a subprotocol that ends in the key instead."""

PLAIN_SUBPROTOCOL = "quire"

Headers = Iterable[tuple[bytes, bytes]]


def presented_key(headers: Headers, *, socket: bool) -> bytes | None:
    """The key in `Authorization` (Bearer, or Basic with it as password), `x-api-key`, or a socket's subprotocols."""
    headers = list(headers)
    authorization = only(headers, b"authorization")
    if authorization is not None:
        return _from_authorization(authorization)
    key = only(headers, b"x-api-key")
    if key is not None:
        return key
    return _from_subprotocol(headers) if socket else None


def accepted_subprotocol(offered: Sequence[str]) -> str | None:
    """What to answer a socket that offers a key: a browser drops one that agrees to nothing it offered.

    Pages offer `quire` beside the key, so that the key need not be sent back.
    """
    if PLAIN_SUBPROTOCOL in offered:
        return PLAIN_SUBPROTOCOL
    return next((each for each in offered if each.startswith(SUBPROTOCOL)), None)


def without_keys(headers: Headers) -> list[tuple[bytes, bytes]]:
    """What the routes may see: a header that they never get is one they cannot log."""
    secret = (b"authorization", b"proxy-authorization", b"x-api-key", b"sec-websocket-protocol")
    return [(name, value) for name, value in headers if name not in secret]


def only(headers: Headers, name: bytes) -> bytes | None:
    """A header's value; given twice it is refused, since whoever stands in front may have judged by the other one."""
    found = [value for header, value in headers if header == name]
    if len(found) > 1:
        raise InvalidRequest(f"the header {name.decode()} is there {len(found)} times; send it once.")
    return found[0] if found else None


def _from_authorization(value: bytes) -> bytes | None:
    scheme, _, rest = value.strip().partition(b" ")
    rest = rest.strip()
    if scheme.lower() == b"bearer":
        return rest
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except binascii.Error:
            return None
    return None


def _from_subprotocol(headers: Headers) -> bytes | None:
    for name, value in headers:
        if name == b"sec-websocket-protocol":
            for offered in value.split(b","):
                if offered.strip().startswith(SUBPROTOCOL.encode()):
                    return offered.strip()[len(SUBPROTOCOL) :]
    return None
