"""From the hidden states of packed sequences to one vector each."""

from torch import Tensor, segment_reduce
from torch.nn import functional

from quire.core.pooling import Pooling


def pool(hidden: Tensor, starts: Tensor, pooling: Pooling) -> Tensor:
    """hidden: [tokens, size], starts: [sequences + 1], no sequence empty; gives [sequences, size] in float32."""
    if pooling == "mean":
        return segment_reduce(hidden.float(), "mean", offsets=starts, axis=0)
    chosen = starts[:-1] if pooling == "cls" else starts[1:] - 1
    return hidden[chosen].float()


def normalize(vectors: Tensor) -> Tensor:
    """Each of length 1; one that is all zeros stays so."""
    return functional.normalize(vectors, dim=-1)
