"""Block names bind everything that decides the KV."""

from quire.core.prompt import MediaKey
from quire.kvcache.chain import chain_name, chain_root, media_in_block, token_bytes


def root(variant: str = "", adapter: str | None = None, cache_salt: str | None = None) -> bytes:
    return chain_root(adapter, cache_salt, variant)


def test_roots_differ_by_adapter_salt_and_variant():
    roots = [
        root(),
        root(adapter="x"),
        root(cache_salt="x"),
        root(adapter="x", cache_salt="x"),
        root(adapter="xx"),
        root("x"),
    ]
    assert len(set(roots)) == len(roots)


def test_names_bind_parent_tokens_and_extra_keys():
    names = {
        chain_name(b"", token_bytes([1, 2])),
        chain_name(b"", token_bytes([2, 1])),
        chain_name(b"p", token_bytes([1, 2])),
        chain_name(b"", token_bytes([1, 2]), b"image"),
        chain_name(b"", token_bytes([1 << 31, 2])),
    }
    assert len(names) == 5
    assert all(len(name) == 32 for name in names)


def test_media_count_in_the_block_where_they_begin():
    media = (MediaKey(3, b"cat"), MediaKey(8, b"dog"))
    assert media_in_block(media, 4, 8) == b""
    assert media_in_block(media, 0, 4) != media_in_block((MediaKey(2, b"cat"),), 0, 4)
    assert b"dog" in media_in_block(media, 8, 12)
