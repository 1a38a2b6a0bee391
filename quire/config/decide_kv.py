"""Decisions of `resolve` about KV: what it is stored in, and how big a block is."""

from dataclasses import replace

from quire.config.decide_compute import check_device_dtype
from quire.config.dtypes import COMPUTE_DTYPES, dtype_bytes
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.kv_layout import KVShape, caches_of_stages, groups_of_stage, kv_shape, layout_of_stage
from quire.config.memory import stages_of
from quire.config.parallel import ParallelConfig
from quire.config.resolved import Choice, KVLayout
from quire.config.sizes import binary_size
from quire.core.errors import ConfigError
from quire.core.kv_bytes import INT8_SCALE
from quire.spec.cache import CacheSpec, KeyValueCache, LatentCache

_FP8 = {"fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
_OF_DEVICES = {"cuda": tuple(_FP8), "cpu": ("int8",)}
"""What each kind of device stores beside the dtypes that models compute in."""


def decide_kv_dtype(
    config: EngineConfig, dtype: str, model: ModelFacts, device: DeviceFacts, choices: list[Choice], *, cpu_core: bool
) -> str:
    """How KV is stored."""
    asked = config.cache.kv_cache_dtype
    if asked == "auto" and cpu_core and device.has_tiles and model.dtype != "float32":
        kv_dtype, reason = "bfloat16", "what this CPU multiplies fastest"
    elif asked == "auto" and cpu_core:
        kv_dtype = model.dtype if model.dtype in COMPUTE_DTYPES else "float16"
        reason = "the checkpoint's own" if kv_dtype == model.dtype else f"enough for a checkpoint in {model.dtype}"
    elif asked == "auto":
        kv_dtype, reason = dtype, "as the model computes"
    elif asked in COMPUTE_DTYPES:
        kv_dtype, reason = asked, "asked for"
        if not cpu_core:
            check_device_dtype("--kv-cache-dtype", asked, asked, device)
    else:
        _check_8_bits(asked, model, device)
        kv_dtype = _FP8.get(asked, asked)
        scales = "a scale for each vector" if asked == "int8" else "the checkpoint's scales where it has them"
        reason = f"asked for; {scales}"
    choices.append(Choice("kv_cache_dtype", kv_dtype, reason))
    return kv_dtype


def _check_8_bits(asked: str, model: ModelFacts, device: DeviceFacts) -> None:
    if asked not in _OF_DEVICES[device.kind]:
        others = ", ".join(("auto", *COMPUTE_DTYPES, *_OF_DEVICES[device.kind]))
        whose = "CPUs" if asked == "int8" else "GPUs"
        raise ConfigError(
            f"--kv-cache-dtype is {asked}, which quire stores on {whose}, but the model runs on {device.name}; use one "
            f"of {others}."
        )
    if device.kind == "cuda":
        check_device_dtype("--kv-cache-dtype", asked, "float8_e4m3fn", device)
    for cache in model.spec.caches:
        if not _fits_8_bits(cache, asked):
            raise ConfigError(
                f"--kv-cache-dtype is {asked}, but a layer of {model.name} keeps {cache}; 8 bits are for keys and "
                "values of heads of an even size, and fp8 for latents too. Use auto."
            )


def _fits_8_bits(cache: CacheSpec, asked: str) -> bool:
    if isinstance(cache, LatentCache):
        return asked != "int8"
    return isinstance(cache, KeyValueCache) and cache.head_dim % 2 == 0


def decide_kv_shape(asked: EngineConfig, model: ModelFacts, kv_dtype: str, choices: list[Choice]) -> KVShape:
    """Of one rank; of the pipeline stage that stores most, where there are several."""
    ranks = asked.parallel.tensor_parallel_size
    caches = [stored_in(kv_dtype, cache.of_rank(ranks)) for cache in model.spec.caches]
    staged = caches_of_stages(caches, stages_of(model, asked.parallel))
    shape = kv_shape(staged, dtype_bytes(kv_dtype), asked.cache.block_size)
    kinds = " and ".join(dict.fromkeys(map(str, caches)))
    reason = f"{asked.cache.block_size} tokens of {shape.layers_per_group} layers, {kinds}"
    if len(shape.groups) > 1:
        by = "window" if " and " not in kinds else "kind and window"
        reason += f"; {len(shape.groups)} groups by {by}, {shape.padded_layers} layers of padding"
    choices.append(Choice("block", binary_size(shape.block_bytes), reason))
    return shape


def kv_of_stages(layout: KVLayout, model: ModelFacts, parallel: ParallelConfig) -> tuple[KVLayout, ...]:
    """How each pipeline stage keeps the KV of its layers; nothing where there is but one."""
    stages = stages_of(model, parallel)
    caches = model.spec.caches
    return tuple(layout_of_stage(layout, caches[each.start : each.stop]) for each in stages) if stages[1:] else ()


def spare_of_last_stage(shape: KVShape, kv_dtype: str, model: ModelFacts, parallel: ParallelConfig) -> int:
    """Bytes of a token that a block has room for and the last stage's layers do not leave."""
    if parallel.pipeline_parallel_size == 1:
        return 0
    last = stages_of(model, parallel)[-1]
    groups = groups_of_stage(shape.groups, model.spec.caches[last.start : last.stop])
    numbers = max(len(group.layers) * group.elements_per_token for group in groups)
    return shape.page_token_bytes - numbers * dtype_bytes(kv_dtype)


def stored_in(kv_dtype: str, cache: CacheSpec) -> CacheSpec:
    """The cache as its numbers are stored."""
    if kv_dtype == "int8" and isinstance(cache, KeyValueCache):
        return replace(cache, scale_bytes=INT8_SCALE)
    return cache
