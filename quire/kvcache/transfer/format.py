"""KVFormat: what two engines must agree on before KV of one means the same to the other. Plain data."""

from collections.abc import Sequence

import msgspec

from quire.config.dtypes import dtype_bytes
from quire.config.resolved import KVLayout
from quire.spec.cache import CacheSpec, KeyValueCache, LatentCache, StateCache

VERSION = 2
"""Of how blocks and messages are written."""


class GroupFormat(msgspec.Struct, frozen=True, array_like=True):
    """One KV group."""

    layers: tuple[int, ...]
    window: int | None


class KVFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Of a whole model's KV. How many ranks share it is not part of it: blocks travel with the heads of all."""

    model: str
    """The fingerprint of its weights."""
    kind: str
    """What a token leaves in a layer, in words."""
    dtype: str
    block_size: int
    num_planes: int
    """Of a block: those of every layer of a group."""
    plane: tuple[int, ...]
    """What one token leaves in one of them: heads first, where there are heads."""
    groups: tuple[GroupFormat, ...]
    version: int = VERSION

    @property
    def num_heads(self) -> int:
        """KV heads of the whole model; latents count as one, which every rank has."""
        return self.plane[0] if len(self.plane) > 1 else 1

    @property
    def block_bytes(self) -> int:
        elements = self.num_planes * self.block_size
        for each in self.plane:
            elements *= each
        return elements * dtype_bytes(self.dtype)


def kv_format(model: str, caches: Sequence[CacheSpec], layout: KVLayout) -> KVFormat:
    """The format of a model whose layers, taken whole, have these caches; `layout` is how a rank keeps its part."""
    kept = [cache for cache in caches if not isinstance(cache, StateCache)]
    [plane] = {shape for group in layout.groups for shape in group.planes}
    if isinstance(kept[0], KeyValueCache):
        plane = (kept[0].num_heads, *plane[1:])  # of all ranks, and with the scale of each vector, where it has one
    depth = max(len(group.layers) for group in layout.groups)
    return KVFormat(
        model=model,
        kind=", ".join(sorted({_kind(cache) for cache in kept})),
        dtype=layout.dtype,
        block_size=layout.block_size,
        num_planes=depth * len(kept[0].planes),
        plane=plane,
        groups=tuple(GroupFormat(group.layers, group.window) for group in layout.groups),
    )


def mismatch(ours: KVFormat, theirs: KVFormat) -> str | None:
    """Why KV of `theirs` is of no use here, in words; None where it is."""
    for name, words in _WORDS.items():
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine != other:
            return f"{words} differ: here {_told(mine)}, there {_told(other)}; {_REMEDIES[name]}"
    return None


_WORDS = {
    "version": "the versions of KV transfer",
    "model": "the fingerprints of the models",
    "kind": "the cache kinds",
    "dtype": "the KV dtypes",
    "block_size": "the block sizes",
    "groups": "the KV groups",
    "num_planes": "the planes of a block",
    "plane": "the shapes of a token's KV",
}
_SAME_MODEL = "start both engines with the same model, from the same files"
_REMEDIES = {
    "version": "run the same version of quire on both sides",
    "dtype": "start both engines with the same --kv-cache-dtype and --dtype",
    "block_size": "start both engines with the same --block-size",
    **dict.fromkeys(("model", "kind", "groups", "num_planes", "plane"), _SAME_MODEL),
}


def _kind(cache: CacheSpec) -> str:
    return "latents" if isinstance(cache, LatentCache) else "keys and values"


def _told(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
