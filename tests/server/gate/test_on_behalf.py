"""Whose a request is when a router says so."""

import pytest

from quire.core.errors import InvalidRequest
from quire.server.caller import Caller
from quire.server.gate.account import Account
from quire.server.gate.on_behalf import ON_BEHALF, behalf_header, on_behalf_of

ROUTER = Caller("r1", Account(), is_admin=True)


def test_what_is_said_is_what_is_read() -> None:
    client = Caller("r2", Account(), tenant="alice", cache_salt="salt", priority=3)
    name, said = behalf_header(client)
    assert name == ON_BEHALF
    found = on_behalf_of(said, ROUTER)
    assert (found.tenant, found.cache_salt, found.priority) == ("alice", "salt", 3)
    assert (found.request_id, found.is_admin) == ("r1", False)


def test_a_router_that_says_nothing_speaks_for_itself() -> None:
    assert on_behalf_of(None, ROUTER) is ROUTER


@pytest.mark.parametrize(
    "said", [b"", b"alice", b"{}", b'{"tenant": ""}', b'{"tenant": 5}', b'{"tenant": "a", "is_admin": true}', b"\xff"]
)
def test_nonsense_is_refused(said: bytes) -> None:
    with pytest.raises(InvalidRequest):
        on_behalf_of(said, ROUTER)


def test_names_have_a_length() -> None:
    with pytest.raises(InvalidRequest):
        on_behalf_of(b'{"tenant": "%s"}' % (b"a" * 200), ROUTER)
