"""What the settings came to: concrete values only, each with the reason it was chosen.

`resolve` makes these; rooms further down take the part they use and never see what was asked.
"""

from dataclasses import dataclass, field
from math import prod
from typing import Literal

from quire.config.dtypes import dtype_bytes
from quire.config.speculation import Speculation
from quire.spec.lora import PAGE_RANK
from quire.spec.quantization import Online

ENCODED_AT_ONCE = 4096
"""Embeddings of media: what a tower holds between its layers grows with them."""
PreemptionMode = Literal["auto", "recompute", "swap"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision of `resolve`, as the start-up table shows it."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers that keep the same tokens: all of them, or those inside one sliding window."""

    layers: tuple[int, ...]
    window: int | None = None
    """Tokens a layer of this group looks back, itself included; None looks back to the start."""
    planes: tuple[tuple[int, ...], ...] = ()
    """Shapes of what a token leaves in each of its layers; none where only the bookkeeping is at work."""

    @property
    def elements_per_token(self) -> int:
        """Numbers that one token leaves in one of its layers."""
        return sum(map(prod, self.planes))


@dataclass(frozen=True, slots=True)
class KVLayout:
    """How KV memory is cut into blocks.

    All groups draw from one pool of pages, so a block of any group has the same bytes; layers of a group that do not
    fill it are padded.
    """

    block_size: int
    num_blocks: int
    """Blocks on the device that sequences can use."""
    num_cpu_blocks: int
    """Blocks of the CPU tier: swapped sequences and evicted prefixes."""
    groups: tuple[KVGroup, ...]
    block_bytes: int
    bytes_per_token: int
    """KV bytes of one token over all layers of one rank, padding excluded."""
    dtype: str


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What one step may hold."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    long_prefill_token_threshold: int = 0
    """At most this many tokens of one prompt a step; 0 leaves it to the budget."""
    num_lookahead_tokens: int = 0
    """Slots kept ready beyond a sequence's tokens, for drafts: of the step that is planned and of the one before, of
    which nobody knows yet how many were right."""
    num_drafts: int = 0
    """Drafts of a sequence that one step verifies at most."""
    recompute_beyond: int | None = None
    """A sequence that outgrows this many tokens is computed anew: the model has other position angles for it."""
    max_encoder_tokens: int = ENCODED_AT_ONCE
    """Embeddings of media that a step makes at most, unless one image alone has more."""
    max_encoded: int = 0
    """Sequences with media for the model's encoder that a step may admit."""
    whole_images: bool = False
    """Whether a step computes the rest of an image or nothing of it: its first token looks at its last one."""
    num_stages: int = 1
    """Of a pipeline: a sampled token reaches the first stage when so many steps have begun since its own."""
    whole_prompts: bool = False
    """Whether a prompt is computed in one step or not at all: an encoder's first token looks at its last one."""


@dataclass(frozen=True, slots=True)
class PreemptionCosts:
    """Estimates that decide between recompute and swap for one sequence."""

    seconds_per_token: float
    """Recomputing one token of context."""
    seconds_per_block: float
    """Moving one block to the host and back."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What single policies need beyond the order itself; a policy reads its own and no other."""

    round_robin_slice: int = 64
    """Tokens a sequence generates before its turn ends."""
    priority_ageing: float = 30.0
    """Seconds of waiting worth one step of priority; 0: waiting counts for nothing."""


@dataclass(frozen=True, slots=True)
class LoraRoom:
    """What is kept for LoRA adapters."""

    max_loras: int
    """Adapters that may be used in one step."""
    max_rank: int
    on_host: int
    """Adapters kept in host memory."""
    num_pages: int
    """On the device; an adapter takes one for each 16 ranks."""
    targets: tuple[str, ...]
    """Kinds of matrices that a page has room for, which say what lies where in it (`spec/lora.py`)."""
    page_elements: int
    dtype: str

    @property
    def pages_each(self) -> int:
        """Of an adapter of the largest rank."""
        return -(-self.max_rank // PAGE_RANK)

    @property
    def num_bytes(self) -> int:
        """Of all pages on the device."""
        return self.num_pages * self.page_elements * dtype_bytes(self.dtype)


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Where prefixes lie on disk."""

    path: str
    num_bytes: int
    """That one engine may fill."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Everything an engine needs to start, and why."""

    dtype: str
    kv: KVLayout
    limits: StepLimits
    preemption: PreemptionMode
    preemption_costs: PreemptionCosts
    policy: str
    enable_prefix_caching: bool
    target_itl_ms: float | None
    weight_bytes: int
    """Bytes of weights on one device."""
    choices: tuple[Choice, ...]
    tensor_share: int = 0
    """Bytes of a device's memory that weights, KV and the largest step may take together."""
    keep_packed: bool = False
    """Whether weights that are stored packed stay so in memory."""
    quantization: Online | None = None
    """What plain weights are quantized to as they are loaded."""
    random_weights: bool = False
    """Whether weights are random (dummy) instead of read."""
    uses_transformers: bool = False
    """Whether the model is built from that library's modules instead of quire's own."""
    cpu_core: bool = False
    """Whether the native core computes."""
    cpu_threads: int | None = None
    """Threads of a CPU; None: one for each physical core."""
    cpu_sharers: int = 1
    """Engines that share those cores."""
    batch_invariant: bool = False
    """Whether a GPU keeps the order of its sums, whatever is in the batch."""
    compile: bool = False
    """Whether layers go through torch.compile."""
    offloaded_layers: int = 0
    """Layers, the last ones, whose weights stay in host memory."""
    expert_slots: int = 0
    """Experts of a layer that are on the device at a time, where others stay in host memory; 0: all."""
    tensor_parallel_size: int = 1
    """Ranks that share every layer."""
    attention_ranks: int = 1
    """Ranks that each attend to sequences of their own, with KV of their own, and share experts alone."""
    expert_parallel: bool = False
    """Whether these ranks have whole experts, instead of some of every expert."""
    spare_experts: int = 0
    """Places of each rank, in every layer with experts, for copies of those that are busy."""
    eplb_step_interval: int = 0
    """Steps after which these copies follow the load; 0: there are none."""
    stage_ends: tuple[int, ...] = ()
    """The layer behind the last one of each pipeline stage; none: there is but one stage."""
    kv_of_stages: tuple[KVLayout, ...] = ()
    """How each stage keeps the KV of its layers in the blocks that `kv` plans for all; none: there is but one stage."""
    column_grain: int = 1
    """Columns of stored matrices that ranks cannot take apart."""
    lora: LoraRoom | None = None
    """None: there are no adapters."""
    disk: DiskRoom | None = None
    """None: prefixes are kept in memory alone."""
    policy_settings: PolicySettings = field(default_factory=PolicySettings)
    queue_timeout: float | None = None
    """Seconds a request may wait before it expires; None: as long as it takes."""
    device_plugin: str | None = None
    """The plugin whose device computes; None: quire's own choice."""
    logits_processors: tuple[str, ...] = ()
    """Plugins whose logits processors requests may name."""
    speculation: Speculation | None = None
    """Which drafts are verified; None: none are."""
    encoder_cache_tokens: tuple[int, int] = (0, 0)
    """Embeddings of media that are kept on the device, and in host memory."""
    mmproj: str | None = None
    """The file of the vision encoder of a GGUF model; None: there is none."""
    draft: "DraftPlan | None" = None
    """The model that drafts, where one does."""
    head: "HeadPlan | None" = None
    """The head that drafts, where one does."""

    @property
    def num_stages(self) -> int:
        return max(1, len(self.stage_ends))

    @property
    def stages(self) -> list[range]:
        """The layers of each pipeline stage, where there are several."""
        return [range(start, end) for start, end in zip((0, *self.stage_ends), self.stage_ends, strict=False)]

    @property
    def num_ranks(self) -> int:
        """Over which the model is spread."""
        return self.tensor_parallel_size * self.attention_ranks * self.num_stages

    @property
    def expert_ranks(self) -> int:
        """Over which the experts of a layer are cut or spread."""
        return self.tensor_parallel_size * self.attention_ranks


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """A model that drafts for a larger one. Its KV lies in the same blocks, beside that of the large one."""

    path: str
    resolved: Resolved
    """As for a model alone, but for the blocks. It is cut for all ranks of the large one, or whole on each of them."""
    file_bytes: int = 0
    """Of its weights."""


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """A head that drafts by what the large model makes of its tokens. What it keeps lies in the same blocks."""

    path: str
    kv: KVLayout | None
    """Of its own layers; None: there are none."""
    features: KVLayout
    """What is kept of each token that the large model made, so that a head that has missed it can catch up."""
    tensor_parallel_size: int = 1
    """Ranks that it is cut for; 1: it is whole, on every rank of the large model."""
    column_grain: int = 1
    """Columns of its stored matrices that ranks cannot take apart."""
    taps: tuple[int, ...] = ()
    """Layers of the large model whose inputs it reads, of which a pipeline's earlier stages have some."""
    borrows_words: bool = False
    """Whether it looks words up in the large model's embedding, which the last stage then has too."""
