"""From a checkpoint and resolved settings to a worker that only reads."""

from pathlib import Path

import torch

from quire.config.resolved import Resolved
from quire.layers.policy import WeightPolicy
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.build import build_model
from quire.models.load import Progress, load_weights
from quire.models.loading.checkpoint import open_checkpoint
from quire.worker.pooling_worker import PoolingWorker


def start_pooling_worker(
    path: Path, resolved: Resolved, *, device: torch.device, progress: Progress | None = None
) -> PoolingWorker:
    """Load the model at `path`, without its output head."""
    if resolved.cpu_threads is not None:
        torch.set_num_threads(resolved.cpu_threads)
    checkpoint = open_checkpoint(path)
    dtype: torch.dtype = getattr(torch, resolved.dtype)
    method = QuantizedMethod(checkpoint.schemes, dtype, expand=True) if checkpoint.schemes else None
    model = build_model(checkpoint.spec.without_head(), WeightPolicy(dtype, device, method))
    load_weights(model, checkpoint, progress)
    return PoolingWorker(model, resolved.limits, dtype, device)
