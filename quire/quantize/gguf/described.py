"""The metadata of a folder's model, as llama.cpp's converter writes it, for the families whose files quire can make."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.layers.rope import stretch_factors
from quire.models.loading.gguf_rope import FREQUENCIES
from quire.quantize.gguf.file import PlannedTensor
from quire.quantize.source import Source
from quire.spec.rope import RopeSpec

_ARCHITECTURES = {"llama": "llama", "smollm2": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""By `model_type`."""


def described_metadata(source: Source) -> dict[str, Any]:
    """What a GGUF file says of a model, its tokenizer apart."""
    spec, config = source.spec, source.model.config
    model_type = str(config.get("model_type"))
    architecture = _ARCHITECTURES.get(model_type)
    if architecture is None or not spec.generates:
        raise CheckpointError(
            f"{source.path} is a {spec.architecture}; of folders quire writes GGUF files for "
            f"{', '.join(_ARCHITECTURES)}. Take a GGUF file of the model, or a scheme that writes a folder."
        )
    if any(window is not None for window in spec.windows):
        raise CheckpointError(
            f"{source.path} has layers with sliding windows, which GGUF's {architecture} has not; take a scheme that "
            "writes a folder, such as int4."
        )
    attention, mlp = spec.layers[0].attention, spec.layers[0].mlp
    values: dict[str, Any] = {
        "block_count": spec.num_layers,
        "context_length": spec.max_position,
        "embedding_length": spec.hidden_size,
        "feed_forward_length": mlp.down.columns,
        "attention.head_count": attention.num_heads,
        "attention.head_count_kv": attention.num_kv_heads,
        "attention.key_length": attention.head_dim,
        "attention.value_length": attention.head_dim,
        "attention.layer_norm_rms_epsilon": float(_epsilon(source)),
        "vocab_size": spec.vocab_size,
        **_rope(spec.ropes[0], source),
    }
    general = {"general.architecture": architecture, "general.name": source.path.resolve().stem}
    return {**general, **{f"{architecture}.{name}": value for name, value in values.items()}}


def described_factors(source: Source) -> list[PlannedTensor]:
    """What Llama 3.1 divides frequencies by, which a GGUF file holds as a tensor."""
    rope = source.spec.ropes[0]
    if rope.kind != "llama3":
        return []
    factors = stretch_factors(rope)
    return [PlannedTensor(FREQUENCIES, "float32", tuple(factors.shape), lambda: factors)]


def _epsilon(source: Source) -> float:
    norm = source.spec.norm
    assert norm is not None, "these families end with a norm"
    return norm.eps


def _rope(rope: RopeSpec, source: Source) -> dict[str, Any]:
    fields: dict[str, Any] = {"rope.freq_base": float(rope.theta), "rope.dimension_count": rope.size}
    if rope.kind in ("default", "llama3"):
        return fields
    if rope.kind in ("linear", "yarn"):
        fields |= {"rope.scaling.type": rope.kind, "rope.scaling.factor": float(rope.scaling["factor"])}
        if rope.kind == "yarn":
            fields["rope.scaling.original_context_length"] = rope.original_length
        return fields
    raise CheckpointError(
        f"{source.path} stretches positions by {rope.kind!r}, which quire does not write into GGUF files; take a "
        "scheme that writes a folder, such as int4."
    )
