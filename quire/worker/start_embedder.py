"""From a checkpoint, or a model that is loaded already, to an embedder that is ready to run."""

from dataclasses import replace
from pathlib import Path

import torch

from quire.config.resolve_embedding import ResolvedEmbedding
from quire.config.resolved import StepLimits
from quire.core.pooling import Pooling
from quire.layers.weights import WeightPolicy
from quire.models.decoder import Decoder
from quire.models.encoder_load import load_encoder
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.load import Progress, load_weights
from quire.models.loading.hf_config import HFShape, read_hf_config
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.open_checkpoint import open_checkpoint
from quire.models.registry import build_encoder, build_model
from quire.worker.embedder import BatchLimits, Embedder
from quire.worker.whole_sequences import Body, DecoderBody, EncoderBody, KVScratch


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
    shape = read_hf_config(checkpoint.config(), str(path))
    policy = WeightPolicy(getattr(torch, resolved.dtype), device, keep_quantized=False)
    limits = BatchLimits(resolved.max_num_seqs, resolved.max_num_batched_tokens)
    body: Body
    if shape.is_encoder:
        encoder = build_encoder(shape, policy)
        load_encoder(encoder, checkpoint, progress)
        body = EncoderBody(encoder, device)
    else:
        decoder = build_model(_without_head(shape), policy)
        load_weights(decoder, checkpoint, progress)
        body = DecoderBody(decoder, _scratch(shape, policy.dtype), limits.max_num_tokens, device)
    return Embedder(body, limits, pooling or ("mean" if shape.is_encoder else "last"))


def embedder_of(
    model: Decoder | FallbackDecoder,
    scratch: KVScratch,
    limits: StepLimits,
    *,
    device: torch.device,
    pooling: Pooling | None = None,
) -> Embedder:
    """An embedder that shares a generating model's weights; it must not run at the same time as a step."""
    batch = BatchLimits(limits.max_num_seqs, limits.max_num_batched_tokens)
    return Embedder(DecoderBody(model, scratch, batch.max_num_tokens, device), batch, pooling or "last")


def _scratch(shape: HFShape, dtype: torch.dtype) -> KVScratch:
    return KVScratch(shape.num_kv_heads, shape.head_dim, dtype)


def _without_head(shape: HFShape) -> HFShape:
    """Hidden states need no output head, and a tied one takes no memory; embedding checkpoints often have none."""
    values = {**shape.fields.values, "tie_word_embeddings": True}
    return replace(shape, fields=HFFields(values, shape.fields.source))
