"""Source: the model that is quantized, and its tensors in float32, whatever its files hold."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.layers.weights import dense
from quire.models.loading.checkpoint import Checkpoint, open_described
from quire.models.loading.described import DescribedModel, describe_local
from quire.models.loading.locate import locate
from quire.spec.latent import LatentAttentionSpec
from quire.spec.model import ModelSpec

_SIXTEEN_BITS = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Source:
    """An open model."""

    path: Path
    model: DescribedModel
    checkpoint: Checkpoint

    @property
    def spec(self) -> ModelSpec:
        return self.model.matched.spec

    @property
    def dtype(self) -> torch.dtype:
        """What is not quantized is written in: the 16 bits that most of its weights have, else bfloat16."""
        sizes = dict.fromkeys(_SIXTEEN_BITS, 0)
        for span in self.model.spans():
            if span.dtype in sizes and not self.model.is_gguf:
                sizes[span.dtype] += span.num_bytes
        return _SIXTEEN_BITS["float16" if sizes["float16"] > sizes["bfloat16"] else "bfloat16"]

    @property
    def stacked(self) -> str | None:
        """What it has that GGUF files and folders hold under names and in shapes of their own; None: nothing."""
        if self.spec.has_experts:
            return "experts"
        is_latent = any(isinstance(layer.attention, LatentAttentionSpec) for layer in self.spec.layers)
        return "latent attention" if is_latent else None

    def has(self, name: str) -> bool:
        return name in self.model.matched.found

    def values(self, name: str) -> Tensor:
        """float32, in quire's layout."""
        return dense(self.checkpoint.stored(name), torch.float32)


def open_source(model: str, revision: str | None = None) -> Source:
    """A folder, a GGUF file, the default model or a hub id. What is quantized already is refused, except for GGUF
    types, which are expanded.
    """
    path = locate(model, revision)
    described = describe_local(path, as_trained=True)
    spec, schemes = described.matched.spec, described.matched.schemes
    if not spec.is_described:
        raise CheckpointError(
            f"{model} is a {spec.architecture}, which runs through transformers; quire quantizes the families that "
            "docs/models.md lists as its own."
        )
    if schemes:
        raise CheckpointError(
            f"{model} is quantized already ({next(iter(schemes.values()))}); give the model's 16-bit weights, or a "
            "GGUF file, which quire expands."
        )
    return Source(path, described, open_described(described))
