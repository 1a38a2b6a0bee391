"""Over how many devices one copy of the model is spread, and how many copies there are."""

from dataclasses import dataclass
from typing import Literal

from quire.config.bounds import check


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Over how many devices one copy of the model is spread."""

    tensor_parallel_size: int = 1
    """Devices that share every layer."""
    pipeline_parallel_size: int = 1
    """Groups of devices that each hold a run of layers and pass on what they make of a step."""
    data_parallel_size: int = 1
    """Copies of the model, each with devices of its own: another name of --replicas."""
    enable_expert_parallel: bool = False
    """Spread whole experts over the devices that share every layer, instead of cutting each expert."""
    distributed_executor_backend: Literal["auto", "process", "ray"] = "auto"
    """How an engine reaches the workers of its other devices: as processes of this host. Actors of Ray, over several
    hosts, are not built yet."""

    @property
    def num_ranks(self) -> int:
        """Devices that one copy takes."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def __post_init__(self) -> None:
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
            check(getattr(self, name) >= 1, name, getattr(self, name), "1 or more", "1 keeps the model in one piece")
