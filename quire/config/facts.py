"""What a checkpoint's header and a device say about themselves: the facts that `resolve` decides from.

Nothing here is asked for by a user and nothing is decided here.
"""

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cpu", "cuda"]
LONG = "long"
"""The KV variant of sequences beyond the length at which position angles change."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The shape of a model, read from its header alone."""

    name: str
    architecture: str
    """The checkpoint's own name of its family, for example `LlamaForCausalLM`."""
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    """The longest context the checkpoint was made for, in tokens."""
    dtype: str
    """What the checkpoint calls its own dtype, for example `bfloat16`."""
    weight_bytes: dict[str, int]
    """Bytes of weights by stored dtype."""
    num_parameters: int
    layer_windows: tuple[int | None, ...] = ()
    """Sliding window of each layer in tokens; None attends to everything. Empty: all layers do."""
    max_position_source: str = "the checkpoint"
    angles_change_at: int | None = None
    """Sequences longer than this are computed with other position angles than shorter ones (dynamic, longrope)."""
    angles_follow_length: bool = False
    """Whether those angles differ with every length (dynamic); what is computed then stays. Otherwise there are two
    sets (longrope), and a sequence that outgrows the first is computed anew with the second."""
    is_encoder: bool = False
    """Whether the model embeds texts and generates none."""
    labels: tuple[str, ...] = ()
    """What a classifier sorts texts into; empty: the model is none."""
    multi_label: bool = False
    """Whether several of the labels may fit a text at once."""

    def kv_variant(self, prompt_length: int) -> str:
        """Prompts of different variants have different KV for the same tokens, so they share none."""
        if self.angles_change_at is None or prompt_length <= self.angles_change_at:
            return ""
        return str(prompt_length) if self.angles_follow_length else LONG

    @property
    def total_weight_bytes(self) -> int:
        return sum(self.weight_bytes.values())

    @property
    def windows(self) -> tuple[int | None, ...]:
        """One entry a layer."""
        return self.layer_windows or (None,) * self.num_layers


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device has and how fast it is; speeds feed cost estimates, not correctness."""

    name: str
    kind: DeviceKind
    memory_bytes: int
    bandwidth: float
    """Bytes a second between the device's memory and its cores, as reached in practice."""
    flops: float
    """16-bit multiply-adds count as two operations a second, as reached in practice."""
    host_bandwidth: float
    """Bytes a second between host and device memory."""
    host_memory_bytes: int
    step_overhead: float
    """Seconds a step costs beyond its bytes and operations: launches, planning, sampling."""
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    """Dtypes it computes in at full speed."""
    has_cpu_core: bool = False
    """Whether it is a CPU for which quire's native core is installed."""
    has_tiles: bool = False
    """Whether that core multiplies bfloat16 in tiles (AMX)."""
    free_bytes: int | None = None
    """Bytes of a GPU's memory that nobody uses; None where there is no GPU to ask."""
