"""shared_prefix_attention: the definition, which reads a shared prefix for each of its sequences."""

from collections.abc import Callable

from torch import Tensor

from quire.ops.reference.paged_attention import paged_attention


def shared_prefix_attention() -> Callable[..., Tensor]:
    """See `quire.ops.functional.shared_prefix_attention`."""
    return paged_attention
