"""The decision of `resolve` whether a token's numbers may depend on what is computed with it."""

from quire.config.dtypes import FP8_DTYPES
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.resolved import Choice
from quire.core.errors import ConfigError
from quire.spec.cache import LatentCache


def decide_batch_invariance(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    dtype: str,
    kv_dtype: str,
    choices: list[Choice],
    *,
    cpu_core: bool,
    keep_packed: bool,
    uses_transformers: bool,
) -> bool:
    """Whether a GPU has to keep the order of its sums; the native core of a CPU always does."""
    if not asked.model.batch_invariant:
        return False
    obstacles = {
        "transformers' modules compute this model": uses_transformers,
        "torch computes on this CPU; --cpu-compute fast keeps the order of sums": device.kind == "cpu" and not cpu_core,
        f"the model computes in {dtype}; use --dtype bfloat16 or float16": device.kind == "cuda" and dtype == "float32",
        "packed weights are multiplied as they are; use --packed-weights expand": device.kind == "cuda" and keep_packed,
        "experts multiply few tokens in another order than many": device.kind == "cuda" and model.spec.has_experts,
        "kernels of latent attention change the order of their sums with the batch": device.kind == "cuda"
        and any(isinstance(cache, LatentCache) for cache in model.spec.caches),
        "KV is stored in fp8; use --kv-cache-dtype auto": kv_dtype in FP8_DTYPES,
        "sums over ranks have an order of their own; use --tensor-parallel-size 1": (
            asked.parallel.tensor_parallel_size > 1
        ),
        "--compile leaves the order of sums to the compiler": asked.model.compile,
    }
    found = next((obstacle for obstacle, is_there in obstacles.items() if is_there), None)
    if found is not None:
        raise ConfigError(
            f"--batch-invariant cannot be kept here: {found}. Change that or leave --batch-invariant out."
        )
    reason = "as ever on the native core" if cpu_core else "asked for; GEMMs and attention keep the order of their sums"
    choices.append(Choice("batch_invariant", "on", reason))
    return not cpu_core


def refuse_batch_invariance(asked: EngineConfig, name: str) -> None:
    """For models that read texts."""
    if asked.model.batch_invariant:
        raise ConfigError(
            f"--batch-invariant is for models that generate, and {name} is opened for embeddings; leave it out."
        )
