"""Caller: who is asking, as the gate found out; routes read it as `request.state.caller`."""

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from quire.core.request import DEFAULT_TENANT
from quire.core.sampling_params import MAX_PRIORITY, SamplingParams
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

    def applied_to(self, params: SamplingParams) -> SamplingParams:
        """What its key and headers say of a request, on top of what the request's body says."""
        changes: dict[str, Any] = {}
        if self.deadline is not None:
            changes["deadline"] = min(self.deadline, params.deadline or self.deadline)
        if self.priority is not None:
            # counted from its key's: a body may make itself less urgent than that, never more
            changes["priority"] = min(self.priority + max(0, params.priority), MAX_PRIORITY)
        if self.cache_salt is not None:
            both = f"{self.cache_salt}\0{params.cache_salt or ''}"
            changes["cache_salt"] = hashlib.sha256(both.encode()).hexdigest()
        return msgspec.structs.replace(params, **changes) if changes else params
