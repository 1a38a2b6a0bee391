"""Over how many devices and hosts one copy of the model is spread, and how many copies there are."""

from dataclasses import dataclass
from typing import Literal

from quire.config.bounds import check


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Over how many devices and hosts one copy of the model is spread."""

    tensor_parallel_size: int = 1
    """Devices that share every layer."""
    pipeline_parallel_size: int = 1
    """Groups of devices that each hold a run of layers and pass on what they make of a step."""
    data_parallel_size: int = 1
    """Copies of the model, each with devices of its own: another name of --replicas. With --enable-expert-parallel
    there is one copy: each of so many devices attends to sequences of its own, and experts are spread over them."""
    enable_expert_parallel: bool = False
    """Spread whole experts over the devices that share every layer, instead of cutting each expert; with
    --data-parallel-size over those that attend each to sequences of their own."""
    num_redundant_experts: int = 0
    """Places for copies of experts in every layer, over all devices that share it: each has an equal part of them. They
    hold copies of the experts that most tokens choose. It takes --enable-expert-parallel."""
    eplb_step_interval: int | None = None
    """Steps after which the copies of --num-redundant-experts follow the load that was measured since. Unset: 3,000."""
    distributed_executor_backend: Literal["auto", "process", "ray"] = "auto"
    """How an engine reaches the workers of its other devices: as processes, of this host or of --nnodes, or as actors
    of Ray, wherever its cluster has room."""
    ray_address: str | None = None
    """Of Ray's cluster, as host:port. Unset: RAY_ADDRESS, the cluster that this host is part of, or one that is started
    here."""
    nnodes: int = 1
    """Hosts over which the model is spread without Ray. On each runs the same command with its own --node-rank."""
    node_rank: int = 0
    """This host's number: 0 serves, the others run workers only."""
    master_addr: str = "127.0.0.1"
    """Address of host 0 at which it listens for the others and they reach it."""
    master_port: int = 29500
    """Port of host 0 at which it listens for the others."""
    rank_timeout: float = 15.0
    """Seconds that a worker may be silent before it counts as hung and the engine is replaced. It says every second
    that it lives, however long its step takes."""

    @property
    def num_ranks(self) -> int:
        """Devices that one copy takes."""
        return self.ranks_per_sequence * self.attention_ranks

    @property
    def ranks_per_sequence(self) -> int:
        """Devices that compute one sequence, but for its experts."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def attention_ranks(self) -> int:
        """Devices that each attend to sequences of their own, with KV of their own, and share experts alone."""
        return self.data_parallel_size if self.enable_expert_parallel else 1

    @property
    def expert_ranks(self) -> int:
        """Devices over which the experts of a layer are cut or spread."""
        return self.tensor_parallel_size * self.attention_ranks

    def __post_init__(self) -> None:
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
            check(getattr(self, name) >= 1, name, getattr(self, name), "1 or more", "1 keeps the model in one piece")
        check(self.nnodes >= 1, "nnodes", self.nnodes, "1 or more", "1 keeps the model on this host")
        copies, interval = self.num_redundant_experts, self.eplb_step_interval
        check(copies >= 0, "num_redundant_experts", copies, "0 or more", "0 keeps every expert on one device")
        if interval is not None:
            check(interval >= 1, "eplb_step_interval", interval, "1 or more", "few steps tell little of the load")
        last = self.nnodes - 1
        check(0 <= self.node_rank <= last, "node_rank", self.node_rank, f"0 to {last}", "--nnodes says how many")
        port = self.master_port
        check(1 <= port <= 65535, "master_port", port, "1 to 65535", "it is the same on all hosts")
        check(bool(self.master_addr), "master_addr", self.master_addr, "an address", "host 0 listens there")
        limit = self.rank_timeout
        check(limit >= 2, "rank_timeout", limit, "2 or more seconds", "workers say every second that they live")
