"""The seed of a request that brought none. Plain integers, no torch."""

from hashlib import blake2b


def seed_for(request_id: str, engine_seed: int) -> int:
    """A 64-bit seed that any engine with the same `engine_seed` draws for this request, in any process, ever."""
    digest = blake2b(f"{engine_seed}/{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
