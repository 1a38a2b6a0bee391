"""What tokens and sequences leave in a layer's cache, alone and cut between ranks."""

import pytest

from quire.core.errors import ConfigError
from quire.spec.cache import KeyValueCache, LatentCache, StateCache, elements_per_token


def test_a_key_and_a_value_for_each_head() -> None:
    cache = KeyValueCache(num_heads=8, head_dim=128, window=4096)
    assert cache.planes == ((8, 128), (8, 128))
    assert (elements_per_token(cache), cache.elements_per_sequence) == (2048, 0)
    assert str(cache) == "8 KV heads × 128"


def test_kv_heads_are_cut_or_replicated() -> None:
    cache = KeyValueCache(num_heads=8, head_dim=128, window=64)
    assert [cache.of_rank(size).num_heads for size in (1, 2, 8, 16, 32)] == [8, 4, 1, 1, 1]
    assert cache.of_rank(4) == KeyValueCache(2, 128, 64)
    with pytest.raises(ConfigError, match="--tensor-parallel-size is 3, but the model has 8 KV heads"):
        cache.of_rank(3)


def test_a_latent_is_one_vector_and_whole_on_every_rank() -> None:
    cache = LatentCache(latent=512, rotary=64)
    assert cache.planes == ((576,),)
    assert (elements_per_token(cache), cache.elements_per_sequence) == (576, 0)
    assert cache.of_rank(8) == cache
    assert str(cache) == "a latent of 512 + 64"


def test_a_state_is_of_a_sequence_and_not_of_its_tokens() -> None:
    cache = StateCache(elements_per_sequence=10_000)
    assert (cache.planes, elements_per_token(cache)) == ((), 0)
    assert [cache.of_rank(size).elements_per_sequence for size in (1, 2, 3)] == [10_000, 5000, 3334]
    assert str(cache) == "a state of 10,000"
