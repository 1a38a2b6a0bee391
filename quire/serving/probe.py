"""Probe: an engine's figures and its books, as the front asks for them."""

import math
import time
from collections.abc import Sequence
from typing import Any

from quire.core.adapter import AdapterRef
from quire.core.expert_load import RecentLoad
from quire.core.stats import EngineStats
from quire.engine.kv_exchange import KVExchange
from quire.engine.loop import EngineLoop
from quire.kvcache.invariants import check
from quire.kvcache.manager import KVManager
from quire.observe.memory import resident_bytes
from quire.serving.messages import Adapters, AdapterSeen, Checked, Experts, Place

_EVERY = 0.5
"""Seconds between signs of life of an engine that has no news."""
_MEASURE_EVERY = 1.0
"""Seconds between figures that cost something: empty slots are counted over every table, a GPU is asked."""


class Probe:
    """Reads what an engine's parts count, and never disturbs them."""

    def __init__(self, loop: EngineLoop, exchange: KVExchange | None = None) -> None:
        self._loop = loop
        self._exchange = exchange
        self._told = 0.0
        self._waste = 0.0
        self._device = (0, 0)
        self._experts = RecentLoad()
        self._measured = -math.inf

    @property
    def is_due(self) -> bool:
        """Whether the front has heard nothing for a while."""
        return time.monotonic() - self._told >= _EVERY

    def stats(self) -> EngineStats:
        self._told = time.monotonic()
        scheduler, figures = self._loop.scheduler, self._loop.figures
        kv, roster = scheduler.kv_of_ranks, scheduler.stats
        pools, hosts = [each.device.pool for each in kv], [each.host for each in kv]
        balance = self._loop.executor.rank_balance()
        has_new_load = False
        if self._told - self._measured >= _MEASURE_EVERY:
            self._measured = self._told
            self._waste, self._device = _waste(kv), self._loop.executor.device_memory()
            has_new_load = self._experts.look(self._loop.executor.expert_load())
        return EngineStats(
            step=figures.step,
            running=len(scheduler.running),
            waiting=scheduler.num_waiting,
            held=scheduler.num_held,
            step_seconds=figures.seconds,
            step_tokens=figures.tokens,
            step_sequences=figures.sequences,
            num_blocks=sum(pool.num_blocks for pool in pools),
            used_blocks=sum(pool.num_used for pool in pools),
            cached_blocks=sum(pool.num_cached for pool in pools),
            block_size=kv[0].block_size,
            kv_waste=self._waste,
            host_blocks=sum(host.pool.num_blocks for host in hosts),
            used_host_blocks=sum(host.pool.num_used for host in hosts),
            total_prefix_tokens=sum(each.stats.tokens_asked for each in kv),
            total_prefix_hits=sum(each.stats.tokens_saved for each in kv),
            total_media_encoded=self._loop.encoding.encoded,
            total_media_found=self._loop.encoding.found,
            total_encoder_seconds=self._loop.encoding.seconds,
            total_preemptions_recompute=roster.preempted_recompute,
            total_preemptions_swap=roster.preempted_swap,
            total_steps_failed=self._loop.num_failed_steps,
            total_out_of_memory=self._loop.num_out_of_memory,
            draft_method=scheduler.draft_method,
            total_drafts=scheduler.drafts.drafts,
            total_draft_tokens=scheduler.drafts.tokens,
            total_accepted_tokens=scheduler.drafts.accepted,
            total_evictions=sum(each.stats.evictions for each in kv),
            total_host_evictions=sum(host.num_evicted for host in hosts),
            sleep_level=self._loop.sleep_level,
            total_wakes=self._loop.num_wakes,
            wake_seconds=self._loop.wake_seconds,
            **self._adapters(),
            **self._expert_cache(),
            **self._disk(),
            **self._transfers(),
            expert_balance=self._experts.recent.balance() if has_new_load and self._experts.recent else [],
            rank_balance=balance,
            total_expert_copies=0 if balance is None else balance.copies_moved,
            total_expert_choices=self._experts.total,
            memory_bytes=resident_bytes(),
            device_memory_bytes=self._device[0],
            device_memory_total=self._device[1],
        )

    def experts(self) -> Experts:
        """As of the last time that figures were measured."""
        recent = self._experts.recent
        return Experts() if recent is None else Experts(list(recent.layers), recent.shares())

    def adapters(self) -> Adapters:
        """Those of the device come first, then those that wait for room; of each the last used."""
        room = self._loop.scheduler.adapters
        if room is None:
            return Adapters()
        hosted = self._loop.executor.hosted_adapter_keys()
        is_hosted = set(hosted)
        seen: dict[str, AdapterSeen] = {}
        for use in room.uses():
            place: Place = "device" if use.is_resident else "host" if use.key in is_hosted else "disk"
            seen[use.key] = AdapterSeen(AdapterRef.name_in(use.key), place, use.running, use.waiting)
        for key in hosted:
            seen.setdefault(key, AdapterSeen(AdapterRef.name_in(key), "host"))
        return Adapters(list(seen.values()))

    def _disk(self) -> dict[str, int]:
        disk = self._loop.disk
        if disk is None:
            return {}
        pool, stats = disk.tier.pool, disk.tier.stats
        return {
            "disk_blocks": pool.num_blocks,
            "used_disk_blocks": pool.num_cached + pool.num_used,
            "disk_block_bytes": disk.block_bytes,
            "total_disk_evictions": stats.evictions,
            "total_disk_hits": stats.hits,
            "total_disk_reads": stats.reads,
            "total_disk_writes": stats.writes,
            "total_disk_corrupt": stats.corrupt,
            "foreign_disk_files": stats.foreign,
        }

    def _adapters(self) -> dict[str, int]:
        room = self._loop.scheduler.adapters
        if room is None:
            return {}
        return {
            "adapters": room.num_resident,
            "host_adapters": self._loop.executor.hosted_adapters(),
            "waiting_adapters": room.num_waiting,
            "total_adapter_hits": room.stats.hits,
            "total_adapter_loads": room.stats.loads,
            "total_adapter_evictions": room.stats.evictions,
        }

    def _expert_cache(self) -> dict[str, int]:
        counts = self._loop.executor.expert_cache()
        if counts is None:
            return {}
        return {
            "total_expert_hits": counts.hits,
            "total_expert_misses": counts.misses,
            "total_expert_evictions": counts.evictions,
        }

    def _transfers(self) -> dict[str, Any]:
        if self._exchange is None:
            return {}
        sent, received, counts = self._exchange.sender.counts, self._exchange.fetcher.counts, self._exchange.counts
        return {
            "fetching": self._exchange.num_fetching,
            "total_kv_sent_blocks": sent.blocks,
            "total_kv_sent_bytes": sent.bytes,
            "total_kv_sent_seconds": sent.seconds,
            "total_kv_received_blocks": received.blocks,
            "total_kv_received_bytes": received.bytes,
            "total_kv_received_seconds": received.seconds,
            "total_kv_refused": sent.refused + received.refused,
            "total_kv_corrupt": received.corrupt,
            "total_kv_declined": counts.declined,
            "total_kv_given_up": counts.given_up,
        }


def check_books(loop: EngineLoop) -> Checked:
    """Whether every block is accounted for, and how many are in use."""
    kv = loop.scheduler.kv_of_ranks
    used = sum(each.device.pool.num_used for each in kv)
    try:
        for each in kv:
            check(each)
    except AssertionError as error:
        return Checked(str(error), used)
    return Checked(None, used)


def _waste(kv: Sequence[KVManager]) -> float:
    """Of the slots that sequences have, on all ranks, those that hold no token."""
    found = [each.usage() for each in kv]
    allocated = sum(usage.allocated_slots for usage in found)
    return sum(usage.wasted_slots for usage in found) / allocated if allocated else 0.0
