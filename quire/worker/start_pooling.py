"""From a checkpoint and resolved settings to a worker that only reads."""

from pathlib import Path

import torch

from quire.config.resolved import Resolved
from quire.layers.policy import WeightPolicy
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.build import build_model
from quire.models.load import Progress, load_weights
from quire.models.loading.checkpoint import open_described
from quire.models.loading.described import describe_local
from quire.worker.pooling_worker import PoolingWorker
from quire.worker.weight_methods import shares_of


def start_pooling_worker(
    path: Path, resolved: Resolved, *, device: torch.device, progress: Progress | None = None
) -> PoolingWorker:
    """Load the model at `path`, without its output head."""
    if resolved.cpu_threads is not None:
        torch.set_num_threads(resolved.cpu_threads)
    described = describe_local(path, "quire")
    spec = described.matched.spec.without_head()
    checkpoint = open_described(described, shares_of(spec.tensors(), described.matched.schemes))
    dtype: torch.dtype = getattr(torch, resolved.dtype)
    method = QuantizedMethod(checkpoint.schemes, dtype, expand=True) if checkpoint.schemes else None
    model = build_model(spec, WeightPolicy(dtype, device, method))
    load_weights(model, checkpoint, progress)
    return PoolingWorker(model, resolved.limits, dtype, device)
