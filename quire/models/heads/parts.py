"""What the descriptions of several heads share."""

from collections.abc import Collection

from quire.core.errors import CheckpointError
from quire.models.families.dimensions import Dimensions
from quire.spec.model import ModelSpec

PICKLED_ANGLES = r".*rotary_emb\.inv_freq"
"""Angles that old checkpoints hold beside their weights."""
_PREFIX = "model."


def has(names: Collection[str], name: str) -> bool:
    """Whether a checkpoint holds a tensor, which some spell with a prefix."""
    return name in names or _PREFIX + name in names


def check_same_size(dims: Dimensions, large: ModelSpec) -> None:
    """A head that takes features and words as the large model has them is as wide as that one."""
    if dims.hidden_size != large.hidden_size:
        raise CheckpointError(
            f"{dims.source} describes a head of hidden size {dims.hidden_size}, and {large.architecture} has "
            f"{large.hidden_size}; the head was made for another model."
        )
    check_same_vocabulary(dims, large)


def check_same_vocabulary(dims: Dimensions, large: ModelSpec) -> None:
    if dims.vocab_size != large.vocab_size:
        raise CheckpointError(
            f"{dims.source} describes a head for {dims.vocab_size:,} tokens, and {large.architecture} has "
            f"{large.vocab_size:,}; the head was made for another model."
        )
