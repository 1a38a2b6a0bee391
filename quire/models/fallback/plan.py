"""FallbackPlan: what quire expects of a model before it is built; the only thing the fallback takes from its config."""

from dataclasses import dataclass

from quire.models.loading.hf_config import HFShape


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
    def of(cls, shape: HFShape) -> "FallbackPlan":
        return cls(
            source=shape.fields.source,
            model_type=shape.model_type,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            windows=shape.windows or (None,) * shape.num_layers,
            vocab_size=shape.vocab_size,
            max_position=shape.max_position,
        )
