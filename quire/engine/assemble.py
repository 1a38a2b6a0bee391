"""From resolved settings to the scheduler they describe; the engine and the simulator both get theirs here."""

from collections.abc import Mapping
from typing import Any

from quire.config.resolved import Resolved
from quire.kvcache.manager import KVManager
from quire.scheduler.adapter_room import AdapterRoom
from quire.scheduler.draft_length import DraftLength
from quire.scheduler.pacing import Pacer
from quire.scheduler.policies.base import Policy
from quire.scheduler.policies.choose import make_policy
from quire.scheduler.scheduler import Scheduler

SJF_TOKENS_PER_SECOND = 50.0
"""What a second of waiting is worth to a short job: after ten seconds one of 500 tokens goes like one of none."""
FAIR_QUANTUM = 4096.0
"""Weighted tokens a tenant may be ahead before its running sequences make way: a few seconds of a busy device."""
_NO_AGEING = 1e12
"""Seconds a level is worth when waiting counts for nothing: longer than anything waits."""


def make_scheduler(resolved: Resolved, tenant_weights: Mapping[str, float] | None = None) -> Scheduler:
    """A scheduler with a KV cache of its own, all as `resolved` says; tenants without a weight weigh 1."""
    target, lora, drafting = resolved.target_itl_ms, resolved.lora, resolved.speculation
    return Scheduler(
        resolved.limits,
        KVManager(resolved.kv, resolved.enable_prefix_caching),
        _make_policy(resolved, dict(tenant_weights or {})),
        resolved.preemption,
        resolved.preemption_costs,
        None if target is None else Pacer(target / 1e3),
        resolved.queue_timeout,
        None if drafting is None else DraftLength(drafting.num_speculative_tokens, drafting.method),
        adapters=None if lora is None else AdapterRoom(lora.num_pages, lora.max_loras),
    )


def _make_policy(resolved: Resolved, weights: dict[str, float]) -> Policy:
    settings = resolved.policy_settings
    options: dict[str, dict[str, Any]] = {
        "sjf": {"tokens_per_second": SJF_TOKENS_PER_SECOND},
        "round-robin": {"slice_tokens": settings.round_robin_slice},
        "priority": {"ageing": settings.priority_ageing or _NO_AGEING},
        "fair": {"quantum": FAIR_QUANTUM, "weights": weights},
    }
    return make_policy(resolved.policy, options.get(resolved.policy, {}))
