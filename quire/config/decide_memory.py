"""Decisions of `resolve` about memory: swap space, blocks on the device and the longest sequence they hold."""

from quire.config.cache import CacheConfig
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.holding import Holding
from quire.config.kv_layout import KVShape, longest_sequence, most_blocks
from quire.config.memory import (
    ENCODED_AT_ONCE,
    GPU_RUNTIME,
    MemoryBudget,
    activation_bytes,
    encoder_bytes,
    graph_bytes,
    row_bytes,
    sampler_bytes,
    state_bytes,
    weights_on_device,
)
from quire.config.resolved import Choice, KVLayout
from quire.config.sizes import GIB, decimal_size
from quire.core.errors import ConfigError, DoesNotFit
from quire.core.ggml_types import PACKED

_DEFAULT_SHARE = {"cuda": 0.92, "cpu": 0.5}
_DEFAULT_SWAP = 4 * GIB
_SHORTEST_USEFUL = 256
"""Tokens. With less room a model technically starts but answers nothing, so that counts as not fitting."""


def memory_share(asked: CacheConfig, device: DeviceFacts) -> float:
    """The share of a device's memory that quire takes."""
    return _DEFAULT_SHARE[device.kind] if asked.gpu_memory_utilization is None else asked.gpu_memory_utilization


def decide_packed(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    dtype: str,
    choices: list[Choice],
    *,
    cpu_core: bool = False,
) -> bool:
    """Whether weights that are stored packed stay so; for the native core of a CPU, plain ones of 16 bits too."""
    wanted = asked.model.packed_weights
    if model.schemes and wanted != "expand" and device.kind == "cuda":
        choices.append(Choice("packed_weights", "keep", "kernels multiply quantized weights"))
        return True
    if not model.schemes and not any(stored in PACKED for stored in model.weight_bytes):
        if wanted != "auto":
            raise ConfigError(f"--packed-weights is {wanted}, but {model.name} has no packed weights; leave it out.")
        return cpu_core
    if cpu_core and wanted != "expand":
        reason = "the native core multiplies packed weights" if wanted == "auto" else "asked for"
        choices.append(Choice("packed_weights", "keep", reason))
        return True
    expanded = weights_on_device(model, Holding(dtype), asked.parallel)
    room = int(device.memory_bytes * memory_share(asked.cache, device))
    keep = wanted == "keep" or (wanted == "auto" and expanded > room // 2)
    reason = f"expanded to {dtype} they take {decimal_size(expanded)} of {decimal_size(room)}"
    choices.append(Choice("packed_weights", "keep" if keep else "expand", "asked for" if wanted != "auto" else reason))
    return keep


def memory_budget(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    holding: Holding,
    step: tuple[int, int],
    shape: KVShape | KVLayout,
    cpu_blocks: int,
    away: int = 0,
) -> MemoryBudget:
    """What one device's memory goes to when a step holds `step` (sequences, tokens); `away` are bytes of weights that
    need no room there."""
    max_num_seqs, max_num_batched_tokens = step
    dtype, longest = holding.dtype, asked.model.max_model_len or model.spec.max_position
    ranks, is_gpu = asked.parallel.tensor_parallel_size, device.kind == "cuda"
    experts_stay_whole = asked.parallel.enable_expert_parallel
    computed = max_num_batched_tokens * asked.parallel.attention_ranks  # by experts, whose tokens come from all
    drawn = max_num_seqs * (1 + asked.scheduler.num_drafts)
    return MemoryBudget(
        total=device.memory_bytes,
        utilization=memory_share(asked.cache, device),
        weights=weights_on_device(model, holding, asked.parallel) - away,
        # all tokens may choose experts of one rank
        activations=activation_bytes(model, dtype, computed, 1 if experts_stay_whole else ranks)
        + encoder_bytes(model, dtype, ENCODED_AT_ONCE[device.kind]),
        sampler=sampler_bytes(model, drawn),
        rows=row_bytes(
            max_num_seqs,
            longest + asked.scheduler.num_lookahead_tokens,
            len(shape.groups),
            shape.block_size,
            state=state_bytes(model, dtype, ranks),
        ),
        swap=0 if is_gpu else cpu_blocks * shape.block_bytes,
        runtime=GPU_RUNTIME if is_gpu else 0,
        graphs=graph_bytes(model, dtype, drawn, ranks) if is_gpu else 0,
    )


def decide_cpu_blocks(asked: EngineConfig, device: DeviceFacts, shape: KVShape, choices: list[Choice]) -> int:
    """Blocks of host memory to swap to."""
    wants_swap = asked.scheduler.preemption_mode == "swap"
    if asked.cache.swap_space is not None:
        size, reason = int(asked.cache.swap_space * GIB), "asked for"
    elif device.kind == "cpu" and not wants_swap:
        size, reason = 0, "a CPU's blocks are in host memory already"
    else:
        size, reason = min(_DEFAULT_SWAP, device.host_memory_bytes // 4), "the usual, at most a quarter of host memory"
    if size > device.host_memory_bytes:
        raise ConfigError(
            f"--swap-space is {asked.cache.swap_space} GiB, but the host of {device.name} has "
            f"{device.host_memory_bytes / GIB:.4g} GiB; lower it."
        )
    blocks = size // shape.block_bytes
    if wants_swap and blocks == 0:
        raise ConfigError(
            f"--preemption-mode is swap, but --swap-space {asked.cache.swap_space} holds no block of "
            f"{shape.block_bytes:,} bytes; raise --swap-space or use --preemption-mode recompute."
        )
    choices.append(Choice("swap_space", f"{blocks:,} blocks ({size / GIB:.4g} GiB)", reason))
    return blocks


def decide_num_blocks(
    asked: CacheConfig, device: DeviceFacts, budget: MemoryBudget, shape: KVShape, choices: list[Choice]
) -> int:
    """Blocks that sequences can use; one more, block 0, is scratch."""
    fits = budget.kv // shape.block_bytes - 1
    if fits < 1:
        raise DoesNotFit(_too_large(device, budget))
    left = f"{decimal_size(budget.kv)} are left of {budget.utilization:.0%} of {decimal_size(budget.total)}"
    if asked.num_gpu_blocks_override is None:
        blocks, reason = fits, left
    elif asked.num_gpu_blocks_override <= fits:
        blocks, reason = asked.num_gpu_blocks_override, f"asked for; {fits:,} would fit"
    else:
        raise ConfigError(
            f"--num-gpu-blocks-override is {asked.num_gpu_blocks_override}, but only {fits} blocks of "
            f"{shape.block_bytes:,} bytes fit {device.name}; lower it or leave it out."
        )
    _check_free(device, budget, (blocks + 1) * shape.block_bytes)
    choices.append(Choice("num_gpu_blocks", f"{blocks:,}", reason))
    return blocks


def _check_free(device: DeviceFacts, budget: MemoryBudget, kv: int) -> None:
    """Raises where a plan would take more than is free. The runtime's part does not count: by the time that a device is
    asked, most of it is taken.
    """
    needed = budget.spent - budget.runtime + kv
    if device.free_bytes is None or needed <= device.free_bytes:
        return
    most = (device.free_bytes + budget.runtime) / budget.total
    raise ConfigError(
        f"quire would take {decimal_size(needed)} of {device.name}, but {decimal_size(device.free_bytes)} of its "
        f"{decimal_size(budget.total)} are free, because other processes use the rest; end them (`nvidia-smi` lists "
        f"them), or use --gpu-memory-utilization {int(100 * most) / 100} at most."
    )


def _too_large(device: DeviceFacts, budget: MemoryBudget) -> str:
    parts = {
        "weights": budget.weights,
        "activations": budget.activations,
        "sampling": budget.sampler,
        "rows": budget.rows,
        "swap space": budget.swap,
        "the driver and libraries": budget.runtime,
        "graphs": budget.graphs,
        "LoRA adapters": budget.adapters,
    }
    spent = ", ".join(f"{decimal_size(size)} of {name}" for name, size in parts.items() if size)
    return (
        f"the model does not fit: {spent} leave no room for KV in the {decimal_size(budget.share)} that are "
        f"{100 * budget.utilization:.3g}% of {device.name}; use a larger device or a smaller model (`quire plan` tries "
        "out what fits)."
    )


def decide_max_model_len(
    asked: EngineConfig, model: ModelFacts, kv: KVLayout, chunk: int, choices: list[Choice]
) -> int:
    """The longest sequence allowed: what was asked, or the checkpoint's, or what the KV cache holds.

    `chunk` is by how many tokens a sequence may grow in one step.
    """
    wanted, lookahead = asked.model.max_model_len, asked.scheduler.num_lookahead_tokens
    longest = model.spec.max_position
    if wanted is not None and wanted > longest:
        raise ConfigError(
            f"--max-model-len is {wanted}, but {model.spec.max_position_source} gives {model.name} {longest} tokens; "
            f"use at most {longest}."
        )
    holds = longest_sequence(kv.groups, kv.block_size, kv.num_blocks, longest + lookahead, chunk) - lookahead
    if wanted is not None and wanted > holds:
        needed = most_blocks(kv.groups, kv.block_size, wanted + lookahead, chunk)
        raise DoesNotFit(
            f"--max-model-len is {wanted}, which needs {_blocks(needed, kv)} of KV, but there are "
            f"{_blocks(kv.num_blocks, kv)}, enough for {max(holds, 0)} tokens; lower it, or free memory "
            "(`quire plan` tries out what fits)."
        )
    enough = 2 if asked.cache.num_gpu_blocks_override else min(_SHORTEST_USEFUL, longest)
    if holds < enough:
        raise DoesNotFit(
            f"the model does not fit: KV has {_blocks(kv.num_blocks, kv)}, enough for a sequence of "
            f"{max(holds, 0)} tokens; use a larger device or a smaller model (`quire plan` tries out what fits)."
        )
    value, reason = _longest_allowed(wanted, longest, holds, model.spec.max_position_source)
    choices.append(Choice("max_model_len", f"{value:,}", reason))
    return value


def _blocks(count: int, kv: KVLayout) -> str:
    return f"{count:,} block{'s' * (count != 1)} ({decimal_size(count * kv.block_bytes)})"


def _longest_allowed(wanted: int | None, longest: int, holds: int, source: str) -> tuple[int, str]:
    if wanted is not None:
        return wanted, "asked for"
    if holds < longest:
        return holds, f"reduced from {longest:,} ({source}): the KV cache holds one sequence of this length"
    return longest, f"from {source}"
