"""From resolved settings to the scheduler they describe; the engine and the simulator both get theirs here."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from quire.config.resolved import Resolved
from quire.kvcache.manager import KVManager
from quire.scheduler.adapter_room import AdapterRoom
from quire.scheduler.base import StepScheduler
from quire.scheduler.draft_length import DraftLength
from quire.scheduler.pacing import Pacer
from quire.scheduler.policies.base import Policy
from quire.scheduler.policies.choose import make_policy
from quire.scheduler.scheduler import Scheduler
from quire.scheduler.spread import SpreadScheduler

SJF_TOKENS_PER_SECOND = 50.0
"""What a second of waiting is worth to a short job: after ten seconds one of 500 tokens goes like one of none."""
FAIR_QUANTUM = 4096.0
"""Weighted tokens a tenant may be ahead before its running sequences make way: a few seconds of a busy device."""
_NO_AGEING = 1e12
"""Seconds a level is worth when waiting counts for nothing: longer than anything waits."""


def make_engine_scheduler(resolved: Resolved, tenant_weights: Mapping[str, float] | None = None) -> StepScheduler:
    """What plans the steps of an engine: a scheduler for each rank that attends to sequences of its own."""
    if resolved.attention_ranks == 1:
        return make_scheduler(resolved, tenant_weights)
    numbers, adapters = count(), _adapter_room(resolved)  # which are in the same slots on all ranks
    return SpreadScheduler(
        [make_scheduler(resolved, tenant_weights, numbers, adapters) for _ in range(resolved.attention_ranks)]
    )


def make_scheduler(
    resolved: Resolved,
    tenant_weights: Mapping[str, float] | None = None,
    numbers: Iterator[int] | None = None,
    adapters: AdapterRoom | None = None,
) -> Scheduler:
    """A scheduler with a KV cache of its own, all as `resolved` says; tenants without a weight weigh 1. Of several that
    plan the same steps, all have the `numbers` of their sequences and the room of `adapters` in common."""
    target = resolved.target_itl_ms
    return Scheduler(
        resolved.limits,
        KVManager(resolved.kv, resolved.enable_prefix_caching),
        _make_policy(resolved, dict(tenant_weights or {})),
        resolved.preemption,
        resolved.preemption_costs,
        None if target is None else Pacer(target / 1e3),
        resolved.queue_timeout,
        _draft_length(resolved),
        adapters=adapters or _adapter_room(resolved),
        numbers=numbers,
    )


def _draft_length(resolved: Resolved) -> DraftLength | None:
    drafting = resolved.speculation
    if drafting is None:
        return None
    return DraftLength(
        drafting.num_speculative_tokens,
        drafting.method,
        any_length=resolved.cpu_core,
        by_a_model=drafting.keeps_kv,
        most_decodes=drafting.disable_by_batch_size,
        num_stages=resolved.num_stages,
    )


def _adapter_room(resolved: Resolved) -> AdapterRoom | None:
    lora = resolved.lora
    return None if lora is None else AdapterRoom(lora.num_pages, lora.max_loras)


def _make_policy(resolved: Resolved, weights: dict[str, float]) -> Policy:
    settings = resolved.policy_settings
    options: dict[str, dict[str, Any]] = {
        "sjf": {"tokens_per_second": SJF_TOKENS_PER_SECOND},
        "round-robin": {"slice_tokens": settings.round_robin_slice},
        "priority": {"ageing": settings.priority_ageing or _NO_AGEING},
        "fair": {"quantum": FAIR_QUANTUM, "weights": weights},
    }
    return make_policy(resolved.policy, options.get(resolved.policy, {}))
