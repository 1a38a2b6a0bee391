"""Whether tokens are drafted, how, and what a model that drafts takes of the device."""

from dataclasses import replace

from quire.config.facts import DeviceFacts
from quire.config.kv_layout import KVShape
from quire.config.resolved import Choice, DraftPlan, KVGroup, KVLayout
from quire.config.scheduler import SchedulerConfig
from quire.config.speculation import SETTING, Speculation
from quire.core.errors import ConfigError


def decide_speculation(
    asked: SchedulerConfig, choices: list[Choice], draft: DraftPlan | None = None
) -> Speculation | None:
    speculation = asked.speculation()
    if speculation is not None and speculation.method == "draft_model" and draft is None:
        raise ConfigError(
            f"{SETTING} names a model that drafts, which this command does not look at; leave it out, and leave room "
            "for that model's weights and KV."
        )
    if speculation is not None:
        most = speculation.num_speculative_tokens
        reason = f"asked for; up to {most} draft{'s' * (most != 1)} of a sequence in a step, as many as pay"
        choices.append(Choice("speculation", speculation.method, reason))
    return speculation


def without_draft(device: DeviceFacts, draft: DraftPlan) -> DeviceFacts:
    """What the weights of the model that drafts leave of a device."""
    weights = draft.resolved.weight_bytes
    free = None if device.free_bytes is None else max(0, device.free_bytes - weights)
    return replace(device, memory_bytes=max(0, device.memory_bytes - weights), free_bytes=free)


def with_draft(shape: KVShape, draft: DraftPlan) -> KVShape:
    """Blocks that hold what both models leave of a token; those of windows too, as they come from the same pool."""
    if all(group.window is not None for group in shape.groups):
        raise ConfigError(
            f"{SETTING} names a model that drafts, and all layers of the large one have windows: none keeps every "
            "token, where the KV of the small one would lie; use the method ngram."
        )
    more = draft.resolved.kv.bytes_per_token
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
