"""Whether tokens are drafted, how, and what a model that drafts takes of the device."""

from dataclasses import replace

from quire.config.decide_kv import stored_in
from quire.config.decide_numbers import Numbers
from quire.config.dtypes import dtype_bytes
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts
from quire.config.kv_layout import KVShape
from quire.config.memory import weights_by_stage
from quire.config.parallel import ParallelConfig
from quire.config.resolved import Choice, DraftPlan, HeadPlan, KVGroup, KVLayout
from quire.config.speculation import SETTING, Speculation
from quire.core.errors import ConfigError
from quire.spec.cache import KeyValueCache, elements_per_token
from quire.spec.model import ModelSpec


def draft_ranks(asked: EngineConfig, drafter: ModelSpec, name: str) -> int:
    """Ranks that what drafts is cut for; 1: each rank of the large model has the whole of it."""
    speculation, size = asked.scheduler.speculation(), asked.parallel.tensor_parallel_size
    wanted = None if speculation is None else speculation.draft_tensor_parallel_size
    if 1 in (size, wanted):
        return 1
    uneven = _undivided(drafter, size)
    if uneven is not None and wanted is not None:
        raise ConfigError(
            f"{SETTING} has draft_tensor_parallel_size {wanted}, but {name} has {uneven}, which {wanted} does not "
            "divide; give 1, so that every rank has the whole of it."
        )
    return size if uneven is None else 1


def _undivided(spec: ModelSpec, ranks: int) -> str | None:
    """Heads that so many ranks cannot share evenly; None: there are none."""
    for attention in (layer.attention for layer in spec.layers):
        if attention.num_heads % ranks:
            return f"{attention.num_heads} attention heads"
        cache = attention.cache
        if isinstance(cache, KeyValueCache) and cache.num_heads % ranks and ranks % cache.num_heads:
            return f"{cache.num_heads} KV heads"
    return None


def decide_speculation(
    asked: EngineConfig, choices: list[Choice], drafter: DraftPlan | HeadFacts | None = None
) -> Speculation | None:
    speculation = asked.scheduler.speculation()
    if speculation is not None and speculation.keeps_kv and drafter is None:
        what = f"the method {speculation.method}, by" if speculation.method else f"the model {speculation.model},"
        raise ConfigError(
            f"{SETTING} has {what} a model or a head which this command does not look at; leave it out, and leave "
            "room for its weights and KV."
        )
    if speculation is not None:
        most = speculation.num_speculative_tokens
        reason = f"asked for; up to {most} draft{'s' * (most != 1)} of a sequence in a step, as many as pay"
        if speculation.disable_by_batch_size is not None:
            reason += f"; none where a step has more than {speculation.disable_by_batch_size} sequences"
        if drafter is not None and asked.parallel.num_ranks > 1:
            reason += f"; {_spread(drafter, asked.parallel)}"
        choices.append(Choice("speculation", speculation.method, reason))
    return speculation


def _spread(drafter: DraftPlan | HeadFacts, parallel: ParallelConfig) -> str:
    held = drafter if isinstance(drafter, HeadFacts) else drafter.resolved
    how = "cut for all of" if held.tensor_parallel_size > 1 else "whole on each of"
    if parallel.pipeline_parallel_size == 1:
        return f"what drafts is {how} {parallel.num_ranks} ranks"
    ranks = parallel.tensor_parallel_size
    return "what drafts is on the last stage" + (f", {how} its {ranks} ranks" if ranks > 1 else "")


def without_drafter(device: DeviceFacts, drafter: DraftPlan | HeadFacts) -> DeviceFacts:
    """What the weights of the model or head that drafts leave of a device."""
    return _less(device, _weight_bytes(drafter))


def beside_drafter(
    device: DeviceFacts, drafter: DraftPlan | HeadFacts, numbers: Numbers, parallel: ParallelConfig
) -> DeviceFacts:
    """What they leave of a device for the fullest stage of the large model: the last stage, where they are, may have
    less of that one's weights."""
    *_, last = of_stages = weights_by_stage(numbers.model, numbers.holding, parallel)
    return _less(device, max(0, _weight_bytes(drafter) - (max(of_stages) - last)))


def _weight_bytes(drafter: DraftPlan | HeadFacts) -> int:
    return drafter.weight_bytes if isinstance(drafter, HeadFacts) else drafter.resolved.weight_bytes


def _less(device: DeviceFacts, weights: int) -> DeviceFacts:
    free = None if device.free_bytes is None else max(0, device.free_bytes - weights)
    return replace(device, memory_bytes=max(0, device.memory_bytes - weights), free_bytes=free)


def with_drafter(shape: KVShape, drafter: DraftPlan | HeadFacts, dtype: str, kv_dtype: str, spare: int = 0) -> KVShape:
    """Blocks that hold what both models leave of a token; those of windows too, as they come from the same pool.

    The large one computes in `dtype` and keeps its KV in `kv_dtype`; `spare` bytes of a token it does not leave where
    the other drafts, though blocks have room for them.
    """
    if all(group.window is not None for group in shape.groups):
        raise ConfigError(
            f"{SETTING} names a model or a head that drafts, and all layers of the large one have windows: none keeps "
            "every token, where the KV of the small one would lie; use the method ngram."
        )
    if isinstance(drafter, HeadFacts):
        more = _feature_bytes(drafter, dtype) + _kv_bytes(drafter, kv_dtype)
    else:
        more = drafter.resolved.kv.bytes_per_token
    more = max(0, more - spare)
    return replace(shape, page_token_bytes=shape.page_token_bytes + more, bytes_per_token=shape.bytes_per_token + more)


def in_blocks_of(large: KVLayout, draft: DraftPlan) -> DraftPlan:
    """The same with its KV in the blocks of the large model: one group, of all its layers."""
    own = draft.resolved.kv
    layers = tuple(sorted(layer for group in own.groups for layer in group.layers))
    group = KVGroup(layers, None, own.groups[0].planes)
    layout = replace(
        own,
        block_size=large.block_size,
        num_blocks=large.num_blocks,
        num_cpu_blocks=large.num_cpu_blocks,
        groups=(group,),
        block_bytes=large.block_size * own.bytes_per_token,
    )
    return replace(draft, resolved=replace(draft.resolved, kv=layout))


def head_in_blocks_of(large: KVLayout, head: HeadFacts, dtype: str) -> HeadPlan:
    """The head with what it keeps in the blocks of the large model, which computes in `dtype`."""
    layers = range(len(head.caches))
    kv = None
    if layers:
        planes = stored_in(large.dtype, head.caches[0]).planes
        kv = _beside(large, KVGroup(tuple(layers), None, planes), _kv_bytes(head, large.dtype), large.dtype)
    group = KVGroup((0,), None, ((head.feature_size,),))
    features = _beside(large, group, _feature_bytes(head, dtype), dtype)
    return HeadPlan(
        head.path, kv, features, head.tensor_parallel_size, head.column_grain, head.taps, head.borrows_words
    )


def _beside(large: KVLayout, group: KVGroup, bytes_per_token: int, dtype: str) -> KVLayout:
    return replace(
        large,
        groups=(group,),
        block_bytes=large.block_size * bytes_per_token,
        bytes_per_token=bytes_per_token,
        dtype=dtype,
    )


def _feature_bytes(head: HeadFacts, dtype: str) -> int:
    """Of a token."""
    return head.feature_size * dtype_bytes(dtype)


def _kv_bytes(head: HeadFacts, kv_dtype: str) -> int:
    return sum(elements_per_token(stored_in(kv_dtype, cache)) for cache in head.caches) * dtype_bytes(kv_dtype)
