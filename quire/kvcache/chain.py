"""Names of full blocks: a BLAKE2b chain over (parent, tokens, extra keys).

Equal names mean equal KV: the chain binds everything before the block, and its root binds what is not in
the tokens (adapter, tenant salt). Media enter at the block where they start. A cryptographic hash, because
a tenant who could craft a collision would read another's cache.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from struct import pack

from quire.core.prompt import MediaKey

NAME_BYTES = 32
TOKEN_BYTES = 4


def chain_root(adapter: str | None, cache_salt: str | None, kv_variant: str) -> bytes:
    """Where the chain of a sequence's blocks starts."""
    parts = (adapter, cache_salt, kv_variant or None)
    if parts == (None, None, None):
        return b""
    digest = blake2b(digest_size=NAME_BYTES)
    for part in parts:
        encoded = b"" if part is None else part.encode()
        digest.update(pack("<?Q", part is not None, len(encoded)))
        digest.update(encoded)
    return digest.digest()


def chain_name(parent: bytes, tokens: bytes | memoryview, extra: bytes = b"") -> bytes:
    """The name of the block that holds `tokens` behind everything `parent` names."""
    return blake2b(parent + tokens + extra, digest_size=NAME_BYTES).digest()


def token_bytes(tokens: Sequence[int]) -> memoryview:
    """Tokens as they enter names, `TOKEN_BYTES` each; made for many blocks at once, which is far faster."""
    return memoryview(array("I", tokens)).cast("B")


def media_in_block(media: tuple[MediaKey, ...], start: int, end: int) -> bytes:
    """Extra keys of the block that holds positions `start` to `end`: the media that begin in it, and where."""
    return b"".join(pack("<Q", key.position) + key.digest for key in media if start <= key.position < end)
