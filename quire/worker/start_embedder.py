"""From a checkpoint, or a model that is loaded already, to an embedder that is ready to run."""

from pathlib import Path

import torch

from quire.config.resolve_embedding import ResolvedEmbedding
from quire.config.resolved import StepLimits
from quire.core.pooling import Pooling
from quire.layers.policy import WeightPolicy
from quire.models.build import build_model
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.language_model import LanguageModel
from quire.models.load import Progress, load_weights
from quire.models.loading.checkpoint import open_checkpoint
from quire.worker.embedder import BatchLimits, Embedder
from quire.worker.whole_sequences import WholeSequences


def start_embedder(
    path: Path,
    resolved: ResolvedEmbedding,
    *,
    device: torch.device,
    pooling: Pooling | None = None,
    progress: Progress | None = None,
) -> Embedder:
    """Load the model at `path` for embeddings alone. Unless told otherwise encoders pool by mean, decoders the last."""
    if resolved.cpu_threads is not None:
        torch.set_num_threads(resolved.cpu_threads)
    checkpoint = open_checkpoint(path)
    dtype: torch.dtype = getattr(torch, resolved.dtype)
    model = build_model(checkpoint.spec.without_head(), WeightPolicy(dtype, device))
    load_weights(model, checkpoint, progress)
    limits = BatchLimits(resolved.max_num_seqs, resolved.max_num_batched_tokens)
    return _embedder(model, dtype, limits, device, pooling)


def embedder_of(
    model: LanguageModel | FallbackDecoder,
    kv_dtype: torch.dtype,
    limits: StepLimits,
    *,
    device: torch.device,
    pooling: Pooling | None = None,
) -> Embedder:
    """An embedder that shares a generating model's weights; it must not run at the same time as a step."""
    batch = BatchLimits(limits.max_num_seqs, limits.max_num_batched_tokens)
    return _embedder(model, kv_dtype, batch, device, pooling)


def _embedder(
    model: LanguageModel | FallbackDecoder,
    kv_dtype: torch.dtype,
    limits: BatchLimits,
    device: torch.device,
    pooling: Pooling | None,
) -> Embedder:
    usual: Pooling = "mean" if model.spec.is_encoder else "last"
    return Embedder(WholeSequences(model, kv_dtype, limits.max_num_tokens, device), limits, pooling or usual)
