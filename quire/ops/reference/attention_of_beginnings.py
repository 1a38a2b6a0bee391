"""attention_of_beginnings: the definition, which reads what sequences have in common for each of them."""

from collections.abc import Callable

from torch import Tensor

from quire.ops.reference.paged_attention import paged_attention


def attention_of_beginnings() -> Callable[..., Tensor]:
    """See `quire.ops.functional.attention_of_beginnings`."""
    return paged_attention
