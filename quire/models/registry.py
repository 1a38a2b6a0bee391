"""Model families by the `model_type` of a checkpoint's config."""

from quire.core.errors import CheckpointError
from quire.core.registry import Registry
from quire.layers.weights import WeightPolicy
from quire.models.decoder import Decoder
from quire.models.encoder import Encoder
from quire.models.loading.hf_config import ENCODER_TYPES, HFShape
from quire.models.offload import offload_layers

_HERE = "quire.models.families"

FAMILIES: Registry[Decoder] = Registry(
    "model family",
    {
        "llama": f"{_HERE}.llama:build",
        "smollm2": f"{_HERE}.llama:build",
        "mistral": f"{_HERE}.mistral:build",
        "qwen2": f"{_HERE}.qwen2:build",
        "qwen3": f"{_HERE}.qwen3:build",
        "gemma2": f"{_HERE}.gemma2:build",
        "gemma3_text": f"{_HERE}.gemma3:build",
        "phi3": f"{_HERE}.phi3:build",
        "gpt2": f"{_HERE}.gpt2:build",
    },
)

ENCODERS: Registry[Encoder] = Registry("encoder family", dict.fromkeys(ENCODER_TYPES, f"{_HERE}.bert:build"))


def build_model(shape: HFShape, policy: WeightPolicy) -> Decoder:
    """The model of a shape, without weights."""
    if shape.model_type in ENCODERS:
        raise CheckpointError(
            f"{shape.fields.source} is of type {shape.model_type!r}, an encoder: it embeds texts and generates none"
        )
    if shape.model_type not in FAMILIES:
        raise CheckpointError(
            f"{shape.fields.source} is of type {shape.model_type!r}; quire runs {', '.join(FAMILIES)}"
        )
    model = FAMILIES.get(shape.model_type)(shape, policy)
    offload_layers(model, policy.offloaded, policy.device)
    return model


def build_encoder(shape: HFShape, policy: WeightPolicy) -> Encoder:
    """The encoder of a shape, without weights."""
    return ENCODERS.get(shape.model_type)(shape, policy)
