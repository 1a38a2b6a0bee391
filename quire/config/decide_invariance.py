"""The decision of `resolve` whether a token's numbers may depend on what is computed with it."""

from quire.config.bounds import check_obstacles
from quire.config.decide_numbers import Numbers
from quire.config.dtypes import FP8_DTYPES
from quire.config.engine import EngineConfig
from quire.config.resolved import Choice
from quire.core.errors import ConfigError
from quire.spec.cache import LatentCache


def decide_batch_invariance(asked: EngineConfig, numbers: Numbers, choices: list[Choice]) -> bool:
    """Whether a GPU has to keep the order of its sums; the native core of a CPU always does."""
    if not asked.model.batch_invariant:
        return False
    model, holding, on_gpu = numbers.model, numbers.holding, numbers.holding.on_gpu
    obstacles = {
        "transformers' modules compute this model": numbers.uses_transformers,
        "torch computes on this CPU; --cpu-compute fast keeps the order of sums": not on_gpu and not holding.cpu_core,
        "the model computes in float32; use --dtype bfloat16 or float16": on_gpu and holding.dtype == "float32",
        "packed weights are multiplied as they are; use --packed-weights expand": on_gpu and holding.keep_packed,
        "experts multiply few tokens in another order than many": on_gpu and model.spec.has_experts,
        "kernels of latent attention change the order of their sums with the batch": on_gpu
        and any(isinstance(cache, LatentCache) for cache in model.spec.caches),
        "KV is stored in fp8; use --kv-cache-dtype auto": numbers.kv_dtype in FP8_DTYPES,
        "sums over ranks have an order of their own; use --tensor-parallel-size 1": (
            asked.parallel.tensor_parallel_size > 1
        ),
        "stages of a pipeline do not keep it on GPUs yet; use --pipeline-parallel-size 1": on_gpu
        and asked.parallel.pipeline_parallel_size > 1,
        "--compile leaves the order of sums to the compiler": asked.model.compile,
    }
    check_obstacles("batch_invariant", obstacles)
    reason = "asked for; GEMMs and attention keep the order of their sums"
    if holding.cpu_core:
        reason = "as ever on the native core"
    choices.append(Choice("batch_invariant", "on", reason))
    return not holding.cpu_core


def refuse_batch_invariance(asked: EngineConfig, name: str) -> None:
    """For models that read texts."""
    if asked.model.batch_invariant:
        raise ConfigError(
            f"--batch-invariant is for models that generate, and {name} is opened for embeddings; leave it out."
        )
