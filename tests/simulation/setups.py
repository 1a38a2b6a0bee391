"""What the simulator's tests share: a replica of a few blocks on a dummy device, and requests for it."""

from typing import Any

from quire.config.facts import DeviceFacts
from quire.config.resolved import KVGroup, KVLayout, PolicySettings, PreemptionCosts, Resolved, StepLimits
from quire.kvcache.invariants import check
from quire.simulation.cost import ModelWork
from quire.simulation.metrics import Metrics
from quire.simulation.replica import Replica, ReplicaSetup
from quire.simulation.workload import SimulatedRequest

MODEL = ModelWork("toy", num_parameters=1_000_000, attended=2 * 4 * 16)
"""Two layers of four heads."""
DEVICE = DeviceFacts(
    name="toy",
    kind="cuda",
    memory_bytes=1 << 30,
    bandwidth=1e9,
    flops=1e12,
    host_bandwidth=1e8,
    host_memory_bytes=1 << 30,
    step_overhead=1e-3,
)


def make_setup(
    *,
    num_blocks: int = 256,
    num_cpu_blocks: int = 0,
    block_size: int = 4,
    groups: tuple[KVGroup, ...] = (KVGroup((0, 1)),),
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    max_model_len: int = 256,
    **settings: Any,
) -> ReplicaSetup:
    replica: dict[str, Any] = {
        name: settings.pop(name) for name in ("async_steps", "tenant_weights", "model") if name in settings
    }
    usual: dict[str, Any] = {"policy": "fcfs", "preemption": "auto", "enable_prefix_caching": True}
    usual |= {"target_itl_ms": None} | settings
    token_bytes = 2 * 2 * 16 * 2 * 2
    resolved = Resolved(
        dtype="bfloat16",
        kv=KVLayout(
            block_size, num_blocks, num_cpu_blocks, groups, token_bytes * block_size, token_bytes, dtype="bfloat16"
        ),
        limits=StepLimits(max_num_seqs, max_num_batched_tokens, max_model_len),
        preemption_costs=PreemptionCosts(seconds_per_token=2e-6, seconds_per_block=1e-5),
        weight_bytes=2_000_000,
        choices=(),
        policy_settings=PolicySettings(round_robin_slice=8, priority_ageing=1.0),
        **usual,
    )
    return ReplicaSetup(resolved=resolved, device=DEVICE, **({"model": MODEL} | replica))


def make_requests(count: int, *, every: float = 0.0, prompt: int = 10, output: int = 12, **fields: Any) -> list[Any]:
    """Requests of different lengths around the given ones."""
    return [
        SimulatedRequest(
            number, number * every, prompt + number * 7 % 11, max(1, output + number * 5 % 13 - 6), **fields
        )
        for number in range(count)
    ]


class CheckedReplica(Replica):
    """Proves the KV bookkeeping after every step."""

    def _step(self) -> bool:
        did = super()._step()
        check(self.scheduler.kv)
        return did


def run(setup: ReplicaSetup, requests: list[SimulatedRequest]) -> Metrics:
    """Simulate with every check there is, and check that all requests are accounted for."""
    replica = CheckedReplica(setup)
    metrics = replica.run(requests)
    assert not replica.scheduler.has_work
    assert replica.scheduler.kv.device.pool.num_used == 0
    tenants = metrics.tenants.values()
    assert sum(tenant.arrived for tenant in tenants) == len(requests)
    assert sum(tenant.ended + tenant.refused for tenant in tenants) == len(requests), "each ends exactly once"
    return metrics
