"""FallbackPlan: what quire expects of a model before it is built; the only thing the fallback takes from its config."""

from dataclasses import dataclass

from quire.spec.cache import KeyValueCache
from quire.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class FallbackPlan:
    """What the KV cache was planned for."""

    source: str
    model_type: str
    num_kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...]
    """One a layer: how many of the latest tokens the cache keeps; None: all."""
    vocab_size: int
    max_position: int

    @classmethod
    def of(cls, spec: ModelSpec, source: str, model_type: str) -> "FallbackPlan":
        cache = spec.caches[0]
        assert isinstance(cache, KeyValueCache), "an outline keeps keys and values"
        return cls(
            source=source,
            model_type=model_type,
            num_kv_heads=cache.num_heads,
            head_dim=cache.head_dim,
            windows=spec.windows,
            vocab_size=spec.vocab_size,
            max_position=spec.max_position,
        )
