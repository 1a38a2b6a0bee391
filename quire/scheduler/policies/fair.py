"""fair: tenants share tokens by weight, whatever they send; a tenant's LoRA adapters share its part evenly."""

from collections.abc import Iterable, Mapping

from quire.core.sequence import Sequence
from quire.scheduler.policies.base import Policy
from quire.scheduler.queue import Rank, WaitingQueue

OUTPUT_WEIGHT = 2.0
"""An output token costs a step of its own; a prompt token shares one. Twice is the usual price ratio."""
MAX_ADAPTERS = 64
"""Accounts kept of a tenant's adapters before those that nobody waits for are cleared."""
MAX_TENANTS = 4096
"""Accounts kept before those of absent tenants are cleared."""


class Fair(Policy):
    """Each tenant has a virtual time: tokens it was served over its weight. The one furthest behind goes next.

    A tenant that comes back after a pause starts no further behind than the others: idle time is no credit.
    A running sequence makes way when its tenant is more than `quantum` tokens ahead of the waiting one.
    """

    preempts = True
    charges = True

    def __init__(self, quantum: float, weights: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self._quantum = quantum
        self._weights = weights or {}
        self._time: dict[str, float] = {}
        self._live: dict[str, set[int]] = {}
        self._queues: dict[str, dict[str, WaitingQueue]] = {}
        """By tenant and by adapter: `""` is the model itself."""
        self._adapter_time: dict[tuple[str, str], float] = {}
        """The same account for each adapter that a tenant uses now, by which its own requests take turns."""

    def weigh(self, weights: Mapping[str, float]) -> None:
        self._weights = weights

    def rank(self, seq: Sequence) -> Rank:
        return (self._time[seq.request.tenant], seq.arrival)

    def outranks(self, waiting: Sequence, running: Sequence) -> bool:
        ahead = self._time[running.request.tenant] - self._time[waiting.request.tenant]
        return ahead > self._quantum

    def charge(self, sequences: Iterable[Sequence], counts: Iterable[int]) -> None:
        time = self._time
        for seq, count in zip(sequences, counts, strict=True):
            tenant = seq.request.tenant
            # the token sampled behind the last one is the output
            cost = count + OUTPUT_WEIGHT - 1 if seq.num_computed > seq.num_prompt else count
            time[tenant] += cost / self._weights.get(tenant, 1.0)
            account = (tenant, _adapter(seq))
            if account in self._adapter_time:
                self._adapter_time[account] += cost

    def finished(self, seq: Sequence) -> None:
        tenant = seq.request.tenant
        live = self._live.get(tenant)
        if live is None:  # a sibling that never queued, behind the tenant's last sequence
            return
        live.discard(seq.id)
        if not live:
            del self._live[tenant]
            for adapter in self._queues.pop(tenant, {}):
                self._adapter_time.pop((tenant, adapter), None)

    def push(self, seq: Sequence) -> None:
        tenant = seq.request.tenant
        if tenant not in self._live:
            self._come_back(tenant)
            self._live[tenant] = set()
        self._live[tenant].add(seq.id)
        queues, adapter = self._queues.setdefault(tenant, {}), _adapter(seq)
        if adapter not in queues:
            self._prune(tenant, queues)
            queues[adapter] = WaitingQueue()
            others = [self._adapter_time[tenant, other] for other in queues if (tenant, other) in self._adapter_time]
            self._adapter_time[tenant, adapter] = min(others, default=0.0)
        queues[adapter].push(seq, (seq.arrival,))

    def peek(self, *, readouts: bool = True) -> Sequence | None:
        first = {tenant: self._first_of(tenant, readouts) for tenant in self._queues}
        tenants = [tenant for tenant, seq in first.items() if seq is not None]
        return first[min(tenants, key=self._time.__getitem__)] if tenants else None

    def remove(self, seq: Sequence) -> None:
        self._queues[seq.request.tenant][_adapter(seq)].remove(seq)

    def _prune(self, tenant: str, queues: dict[str, WaitingQueue]) -> None:
        """Forget adapters that nobody waits for, once they are many: every look at who is next goes through all."""
        if len(queues) >= MAX_ADAPTERS:
            for adapter in [name for name, queue in queues.items() if not len(queue)]:
                del queues[adapter], self._adapter_time[tenant, adapter]

    def _first_of(self, tenant: str, readouts: bool) -> Sequence | None:
        queues = self._queues[tenant]
        if len(queues) == 1:
            [queue] = queues.values()
            return queue.peek(readouts=readouts)
        first = {adapter: queue.peek(readouts=readouts) for adapter, queue in queues.items()}
        waiting = [adapter for adapter, seq in first.items() if seq is not None]
        return first[min(waiting, key=lambda adapter: self._adapter_time[tenant, adapter])] if waiting else None

    def _come_back(self, tenant: str) -> None:
        """Idle time is no credit, and being ahead is not forgotten."""
        behind = min((self._time[live] for live in self._live), default=self._time.get(tenant, 0.0))
        self._time[tenant] = max(behind, self._time.get(tenant, 0.0))
        if len(self._time) > MAX_TENANTS:
            # an absent tenant that is not ahead of the present ones comes back the same without its entry
            self._time = {name: time for name, time in self._time.items() if name in self._live or time > behind}
            self._time.setdefault(tenant, behind)

    def __len__(self) -> int:
        return sum(len(queue) for queues in self._queues.values() for queue in queues.values())


def _adapter(seq: Sequence) -> str:
    adapter = seq.request.prompt.adapter
    return "" if adapter is None else adapter.key
