"""Decisions of `resolve` about preemption: what becomes of a sequence that makes way, and what that costs."""

from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.resolved import Choice, KVLayout, PreemptionCosts, PreemptionMode
from quire.config.scheduler import SchedulerConfig


def decide_preemption(asked: SchedulerConfig, kv: KVLayout, choices: list[Choice]) -> PreemptionMode:
    """Recompute, swap, or for each sequence whichever is cheaper."""
    mode: PreemptionMode = asked.preemption_mode
    reason = "asked for"
    if mode == "auto" and kv.num_cpu_blocks == 0:
        mode, reason = "recompute", "there is no swap space"
    elif mode == "auto":
        reason = "recompute or swap, whichever costs a sequence less"
    choices.append(Choice("preemption_mode", mode, reason))
    return mode


def preemption_costs(model: ModelFacts, device: DeviceFacts, kv: KVLayout, num_ranks: int) -> PreemptionCosts:
    """By the speeds of one of the ranks that share the model."""
    operations = 2 * model.num_active_parameters / num_ranks
    return PreemptionCosts(
        seconds_per_token=operations / device.flops,
        seconds_per_block=2 * kv.block_bytes / device.host_bandwidth,
    )
