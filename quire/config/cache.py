"""How KV memory is sized and reused."""

import math
from dataclasses import dataclass
from typing import Literal

from quire.config.bounds import check, check_path
from quire.core.errors import ConfigError

KVCacheDtype = Literal["auto", "float32", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"]

BLOCK_SIZES = tuple(2**power for power in range(9))


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """How KV memory is sized and reused."""

    block_size: int = 16
    """Tokens in one block of the KV cache, a power of two."""
    gpu_memory_utilization: float | None = None
    """Share of the device's memory for weights, activations and KV together. Unset: 0.92 on a GPU, 0.5 on a CPU."""
    kv_cache_dtype: KVCacheDtype = "auto"
    """How KV is stored. auto: as the model computes. 8 bits hold twice the tokens of 16: on GPUs that have fp8, fp8
    (fp8_e4m3) or fp8_e5m2, divided by the checkpoint's k_scale and v_scale where it has them; on CPUs int8, with a
    scale for each vector."""
    swap_space: float | None = None
    """GiB of host memory a device may swap KV blocks to. Unset: 4 on a GPU, none on a CPU. From a sixteenth of the
    device's own blocks on, it also keeps prefixes that the device evicts."""
    enable_prefix_caching: bool = True
    """Keep the KV of finished prompts and reuse it for prompts that begin the same way."""
    num_gpu_blocks_override: int | None = None
    """Use exactly this many blocks instead of all that fit."""
    kv_disk_path: str | None = None
    """Folder on a fast disk for prefixes: they are written beside the steps and found again after a restart. Unset:
    none."""
    kv_disk_gb: float | None = None
    """GiB that prefixes may take below --kv-disk-path, shared by the replicas of a server; the least recently used go
    first. Unset: 16."""

    def __post_init__(self) -> None:
        allowed = f"a power of two from 1 to {BLOCK_SIZES[-1]}"
        check(self.block_size in BLOCK_SIZES, "block_size", self.block_size, allowed, "16 suits most models")
        if self.gpu_memory_utilization is not None:
            share = self.gpu_memory_utilization
            check(
                0 < share <= 1, "gpu_memory_utilization", share, "more than 0 and at most 1", "0.92 is the usual share"
            )
        if self.swap_space is not None:
            ok = math.isfinite(self.swap_space) and self.swap_space >= 0
            check(ok, "swap_space", self.swap_space, "0 or more GiB", "0 turns swapping off")
        self._check_disk()
        if self.num_gpu_blocks_override is not None:
            ok, fix = self.num_gpu_blocks_override >= 1, "leave it out to use all blocks that fit"
            check(ok, "num_gpu_blocks_override", self.num_gpu_blocks_override, "1 or more", fix)

    def _check_disk(self) -> None:
        path, size = self.kv_disk_path, self.kv_disk_gb
        check_path("kv_disk_path", path)
        if size is not None:
            ok = math.isfinite(size) and size > 0
            check(ok, "kv_disk_gb", size, "more than 0 GiB", "leave out --kv-disk-path to keep nothing on disk")
            if path is None:
                raise ConfigError("--kv-disk-gb has no effect without --kv-disk-path; give both, or neither.")
