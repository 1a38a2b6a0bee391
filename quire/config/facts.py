"""What a checkpoint's header and a device say about themselves: the facts that `resolve` decides from.

Nothing here is asked for by a user and nothing is decided here.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from quire.config.dtypes import DTYPE_BYTES
from quire.config.links import INFINIBAND_NDR, NVLINK_4, Link
from quire.core.ggml_types import PACKED
from quire.spec.cache import CacheSpec
from quire.spec.model import ModelSpec
from quire.spec.quantization import WeightScheme

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class MediaFacts:
    """How a model reads images, in the words of the files that a folder would have; GGUF files say it in their own."""

    config: Mapping[str, Any]
    """config.json."""
    image: Mapping[str, Any]
    """preprocessor_config.json, of images …"""
    video: Mapping[str, Any]
    """… and of videos."""
    source: str
    """The mmproj file."""
    stand_in: str = ""
    """The token that stands in for the one of images, where the vocabulary lacks that."""


@dataclass(frozen=True)
class ModelFacts:
    """A model as its header tells it: what it is, and how its weights are stored.

    What is counted over all tensors is kept: experts are tens of thousands, and plans are tried by the dozen.
    """

    name: str
    spec: ModelSpec
    dtype: str
    """What the checkpoint calls its own dtype, for example `bfloat16`."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """By tensor of the spec: the dtype or ggml type it is stored in; those left out are stored in `dtype`."""
    other_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of weights that the spec does not describe, by stored dtype."""
    schemes: Mapping[str, WeightScheme] = field(default_factory=dict)
    """Of the parts of matrices that are quantized, by name."""
    left_out: tuple[str, ...] = ()
    """Tensors of parts of the model that quire does not run, each with its reason."""
    media: MediaFacts | None = None
    """How it reads images, where no folder says it."""

    @property
    def mmproj(self) -> str | None:
        """The file of its vision encoder, where that is one of its own."""
        return None if self.media is None else self.media.source

    def kind(self, tensor: str) -> str:
        """How a tensor of the spec is stored."""
        return self.kinds.get(tensor, self.dtype)

    @cached_property
    def weight_bytes(self) -> dict[str, int]:
        """Bytes of weights by stored dtype, the largest first."""
        sizes: Counter[str] = Counter(self.other_bytes)
        for tensor in self.spec.tensors():
            scheme = self.schemes.get(tensor.name.removesuffix(".weight")) if tensor.use == "matrix" else None
            if scheme is None:
                kind = self.kind(tensor.name)
                sizes[kind] += stored_bytes(kind, tensor.num_elements)
            else:
                rows, columns = tensor.shape
                sizes[str(scheme)] += scheme.held_bytes(rows, columns)
        return dict(sizes.most_common())

    @property
    def num_active_parameters(self) -> int:
        """Those that one token is multiplied by: of experts, its own alone."""
        return self.num_parameters if not self.spec.has_experts else self.spec.num_active_parameters

    @property
    def labels(self) -> tuple[str, ...]:
        """What a classifier sorts texts into; empty if the model is no classifier."""
        return () if self.spec.classifier is None else self.spec.classifier.labels

    @property
    def multi_label(self) -> bool:
        """Whether several of the labels may fit a text at once."""
        return self.spec.classifier is not None and self.spec.classifier.multi_label

    @property
    def regression(self) -> bool:
        """Whether a classifier's numbers are what it was trained to give."""
        return self.spec.classifier is not None and self.spec.classifier.regression

    @property
    def total_weight_bytes(self) -> int:
        return sum(self.weight_bytes.values())

    @cached_property
    def layer_bytes(self) -> dict[Any, list[int]]:
        """What each layer takes on a device, by how it is held there and what of it: kept by who counts it."""
        return {}

    @cached_property
    def num_parameters(self) -> int:
        """Tied matrices count once."""
        return self.spec.num_parameters + sum(
            size // DTYPE_BYTES.get(kind, 1) for kind, size in self.other_bytes.items()
        )


def stored_bytes(kind: str, num_elements: int) -> int:
    """Bytes of so many elements in a dtype or ggml type."""
    packed = PACKED.get(kind)
    return num_elements * DTYPE_BYTES[kind] if packed is None else packed.bytes_of(num_elements)


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """A head that drafts by what a large model makes of its tokens, as its files tell it."""

    path: str
    weight_bytes: int
    """On one rank."""
    caches: tuple[CacheSpec, ...]
    """What a token leaves in each of its layers, on one rank; empty: it looks at one token alone."""
    feature_size: int
    """Numbers of the large model that are kept of each token."""
    tensor_parallel_size: int = 1
    """Ranks that it is cut for; 1: it is whole, on every rank of the large model."""
    column_grain: int = 1
    """Columns of its stored matrices that ranks cannot take apart."""
    file_bytes: int = 0
    """Of its weights, where their files are not the large model's."""
    taps: tuple[int, ...] = ()
    """Layers of the large model whose inputs it reads."""
    borrows_words: bool = False
    """Whether it looks words up in the large model's embedding."""


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
    link: Link = NVLINK_4
    """To the other devices of its host."""
    link_between_hosts: Link = INFINIBAND_NDR
    devices_per_host: int = 8
    step_curve: tuple[tuple[int, float], ...] = ()
    """(tokens, seconds) of steps of one model that were measured with hardly any context, by rising tokens. None: steps
    are priced by the speeds above."""

    def link_of(self, num_devices: int) -> Link:
        """What carries the collectives of so many devices; a group on several hosts is as slow as what joins them."""
        return self.link if num_devices <= self.devices_per_host else self.link_between_hosts

    def shared(self, share: float) -> "DeviceFacts":
        """What one of several engines on this device may plan with."""
        memory, host = int(self.memory_bytes * share), int(self.host_memory_bytes * share)
        free = None if self.free_bytes is None else min(self.free_bytes, memory)
        return replace(self, memory_bytes=memory, host_memory_bytes=host, free_bytes=free)
