"""Caller: who is asking, as the gate found out; routes read it as `request.state.caller`."""

import asyncio
from dataclasses import dataclass, field

from quire.core.request import DEFAULT_TENANT
from quire.protocol.journal import AnswerIdentity
from quire.server.gate.account import Account


@dataclass(frozen=True, slots=True)
class Caller:
    """One request's sender. Without keys everyone is the default tenant."""

    request_id: str
    account: Account
    """What the tenant may still use."""
    tenant: str = DEFAULT_TENANT
    priority: int | None = None
    """The most urgent that its key lets it be; None leaves it to the body."""
    cache_salt: str | None = None
    """Keeps its prefixes from other tenants; None shares them."""
    models: frozenset[str] | None = None
    """Models it may use; None: all."""
    is_admin: bool = False
    """Its key may use /debug/*, and see the requests of all."""
    revoked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its key no longer opens what it was let in for."""
    deadline: float | None = None
    """Seconds its request may take, from X-Request-Deadline."""
    answer: AnswerIdentity | None = None
    """What the answer says of itself, where it may go on at another server or comes from one."""
