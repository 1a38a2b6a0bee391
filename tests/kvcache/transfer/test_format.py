"""What engines must agree on, from a model's caches and a rank's layout."""

from quire.config.kv_layout import kv_shape
from quire.config.resolved import KVLayout
from quire.kvcache.transfer.format import kv_format, mismatch
from quire.spec.cache import KeyValueCache, LatentCache


def layout(caches, dtype="bfloat16", itemsize=2, block_size=16) -> KVLayout:
    shape = kv_shape(caches, itemsize, block_size)
    return KVLayout(block_size, 8, 0, shape.groups, shape.block_bytes, shape.bytes_per_token, dtype)


def test_a_block_has_the_bytes_that_the_layout_says():
    for caches in (
        [KeyValueCache(8, 64)] * 4,
        [LatentCache(512, 64)] * 3,
        [KeyValueCache(2, 8, 4), KeyValueCache(2, 8)],
    ):
        plan = layout(caches)
        assert kv_format("m", caches, plan).block_bytes == plan.block_bytes


def test_the_number_of_ranks_does_not_count():
    whole = [KeyValueCache(8, 64)] * 4
    alone = kv_format("m", whole, layout(whole))
    shared = kv_format("m", whole, layout([cache.of_rank(4) for cache in whole]))
    assert mismatch(alone, shared) is None
    assert alone == shared


def test_scales_beside_vectors_are_part_of_it():
    cache = KeyValueCache(2, 64)
    stored = KeyValueCache(2, 64, scale_bytes=4)
    told = kv_format("m", [cache], layout([stored], "int8", 1))
    assert told.plane == (2, 68)
    assert told.block_bytes == layout([stored], "int8", 1).block_bytes


def test_other_windows_are_told():
    slid, whole = [KeyValueCache(2, 8, 4)] * 2, [KeyValueCache(2, 8)] * 2
    told = mismatch(kv_format("m", slid, layout(slid)), kv_format("m", whole, layout(whole)))
    assert told is not None
    assert told.startswith("the KV groups differ: here")
