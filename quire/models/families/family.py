"""Family: one way to build models, as a file of this folder says it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quire.models.families.dimensions import Dimensions
from quire.models.loading.gguf_metadata import GGUFMetadata
from quire.models.loading.spans import TensorSpan
from quire.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class GGUFModel:
    """What a family may read of a GGUF file beyond the fields that all have."""

    read: GGUFMetadata
    shape: Mapping[str, Any]
    """Fields of the config that were read already."""
    tensors: Mapping[str, TensorSpan]
    """By name."""


@dataclass(frozen=True, slots=True)
class Family:
    """From a config to a spec."""

    describe: Callable[[Dimensions], ModelSpec]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What the family's own class fills in when a config leaves a field out; other fields must be there."""
    adapt: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Fields under names of the family's own, as those that all families share."""
    from_gguf: Callable[[GGUFModel], dict[str, Any]] = lambda model: {}
    """Fields of a config that GGUF metadata holds in the family's own way."""
