"""prepare_heads: from a layer's projection to its queries; keys and values go to the cache on the way."""

from torch import Tensor

from quire.ops.head_norms import HeadNorms
from quire.ops.reference.norm_heads import norm_heads
from quire.ops.reference.rotary import rotary
from quire.ops.reference.write_kv import write_kv


def prepare_heads(
    heads: Tensor,
    num_kv_heads: int,
    norms: HeadNorms | None,
    angles: tuple[Tensor, Tensor] | None,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    scales: Tensor | None = None,
) -> Tensor:
    num_heads = heads.shape[1] - 2 * num_kv_heads
    counts = (num_heads, num_kv_heads, num_kv_heads)
    query: Tensor
    query, key, value = heads.split(counts, dim=1)  # type: ignore[no-untyped-call]
    if norms is not None:
        query, key = norm_heads(query, norms.query, norms), norm_heads(key, norms.key, norms)
    if angles is not None:
        query, key = rotary(query, *angles), rotary(key, *angles)
    write_kv(key, value, keys, values, slots, scales)
    return query
