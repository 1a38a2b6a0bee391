"""Keys: who may come in and as whom. Keys are held as SHA-256 digests only; the keys themselves are their owners'.

A plain hash is enough because keys are 32 random bytes: there is nothing to guess that a slow or salted hash would
protect, and a request is not made to wait for one.
"""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from quire.core.errors import ConfigError
from quire.core.request import DEFAULT_TENANT
from quire.server.gate.account import Account, Limits
from quire.server.gate.usage_table import UsageTable


@dataclass(frozen=True, slots=True)
class Key:
    """What one key opens."""

    name: str
    """Its owner as a tenant: in logs, metrics and the fair schedule."""
    digest: bytes = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    priority: int | None = None
    """The most urgent that its requests may be; None leaves it to them. A key of a file has 0 unless it says more."""
    models: frozenset[str] | None = None
    weight: float = 1.0
    """Its share of a fair schedule beside the other keys' weights."""
    shares_cache: bool = False
    """Its prefixes are found by other keys that share theirs."""
    admin: bool = False
    """It may use /debug/*, and /stats shows it the requests of all."""

    @property
    def cache_salt(self) -> str | None:
        """Keeps its prefixes from others. It comes from the digest, so that no other key's owner can name it."""
        if self.shares_cache:
            return None
        return hmac.digest(self.digest, b"quire cache salt", "sha256").hex()


def digest_of(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def master_key(api_key: str) -> Key:
    """The key of --api-key: no limits, all routes."""
    return Key(DEFAULT_TENANT, digest_of(api_key.encode()), shares_cache=True, admin=True)


class KeyRing:
    """All keys that are good now, and the accounts of their owners."""

    def __init__(
        self, keys: Iterable[Key], *, clock: Callable[[], float] = time.monotonic, usage: UsageTable | None = None
    ) -> None:
        """`usage` is where the fronts of a server share what tenants have used; None where there is one front."""
        self._clock = clock
        self._usage = usage
        self._by_digest: dict[bytes, Key] = {}
        self._accounts: dict[str, Account] = {}
        self._revoked: dict[bytes, asyncio.Event] = {}
        self.replace(keys)

    def __len__(self) -> int:
        return len(self._by_digest)

    def find(self, presented: bytes) -> Key | None:
        """The key that `presented` is, if it is one.

        What this takes depends on the digest of what was presented, never on how much of it was right: guesses that
        share a beginning with a key have nothing in common with its digest. The lookup therefore tells nothing, and
        the last comparison takes the same time whatever it finds.
        """
        digest = digest_of(presented)
        key = self._by_digest.get(digest)
        return key if key is not None and hmac.compare_digest(key.digest, digest) else None

    def account(self, key: Key) -> Account:
        return self._accounts[key.name]

    def revoked(self, key: Key) -> asyncio.Event:
        """Set as soon as the key opens nothing any more, or other things than now."""
        return self._revoked.setdefault(key.digest, asyncio.Event())

    def has_tenant(self, name: str) -> bool:
        """Whether a tenant has a key."""
        return name in self._accounts

    def account_of(self, tenant: str) -> Account:
        """The account of a tenant by its name; one that has no key any more has no limits to keep either."""
        return self._accounts.get(tenant) or Account()

    def weights(self) -> dict[str, float]:
        """Tenant → its weight in a fair schedule."""
        return {key.name: key.weight for key in self._by_digest.values()}

    def replace(self, keys: Iterable[Key]) -> None:
        """Other keys from now on. An owner who stays keeps what was used, also under another key."""
        keys = list(keys)
        by_digest = {key.digest: key for key in keys}
        if len(by_digest) < len(keys) or len({key.name for key in keys}) < len(keys):
            raise ConfigError("a key or its name is there twice; --api-key must be none of the keys in --keys.")
        self._revoke(by_digest)
        self._by_digest = by_digest
        self._accounts = {key.name: self._kept(key) for key in keys}

    def _revoke(self, coming: dict[bytes, Key]) -> None:
        for digest, key in self._by_digest.items():
            new = coming.get(digest)
            # limits and weights change under what runs; the rest is what its caller was let in as
            if new is None or replace(new, limits=key.limits, weight=key.weight) != key:
                self._revoked.pop(digest, asyncio.Event()).set()

    def _kept(self, key: Key) -> Account:
        account = self._accounts.get(key.name)
        if account is None:
            shared = None if self._usage is None else self._usage.of(key.name)
            return Account(key.limits, clock=self._clock, shared=shared)
        account.change(key.limits)
        return account
