"""On behalf of: a router has judged a request by its own keys, and says whose it is.

It is believed where nobody needs a key, since then anybody could be a router, and where its own key is an admin's.
"""

from dataclasses import replace

import msgspec

from quire.core.errors import InvalidRequest
from quire.server.caller import Caller

ON_BEHALF = b"x-quire-caller"
_LONGEST = 128


class Behalf(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a router says of a client."""

    tenant: str
    cache_salt: str | None = None
    priority: int | None = None


def on_behalf_of(header: bytes | None, caller: Caller) -> Caller:
    """The caller for whom the request is; the sender itself where it says nothing. Raises InvalidRequest."""
    if header is None:
        return caller
    try:
        said = _READ.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{ON_BEHALF.decode()} cannot be read: {error}") from None
    if not 0 < len(said.tenant) <= _LONGEST or len(said.cache_salt or "") > _LONGEST:
        raise InvalidRequest(f"{ON_BEHALF.decode()} has a tenant or a salt that is empty or longer than {_LONGEST}")
    return replace(caller, tenant=said.tenant, cache_salt=said.cache_salt, priority=said.priority, is_admin=False)


def behalf_header(caller: Caller) -> tuple[bytes, bytes]:
    """How a router says whose a request is."""
    said = Behalf(caller.tenant, caller.cache_salt, caller.priority)
    return ON_BEHALF, msgspec.json.encode(said)


_READ = msgspec.json.Decoder(Behalf)
