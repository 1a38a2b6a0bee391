"""StorageShape: how the blocks of a layout lie in one piece of memory. Plain numbers."""

from math import prod

from quire.config.dtypes import dtype_bytes
from quire.config.resolved import KVLayout
from quire.core.errors import ConfigError


class StorageShape:
    """[planes of all layers of a group, blocks, block size, *one token's]; block 0 is the null block.

    Layer i of a group and layer i of any other group share their planes: they never use the same block.
    """

    def __init__(self, layout: KVLayout) -> None:
        planes = _planes(layout)
        depth = max(len(group.layers) for group in layout.groups)
        self.planes_of_layer = len(planes)
        self.block = (layout.block_size, *planes[0])
        self.num_planes = self.planes_of_layer * depth
        self.shape = (self.num_planes, layout.num_blocks + 1, *self.block)
        self.block_bytes = self.num_planes * prod(self.block) * dtype_bytes(layout.dtype)
        self._places = {
            layer: (place, group) for group, spec in enumerate(layout.groups) for place, layer in enumerate(spec.layers)
        }

    @property
    def num_elements(self) -> int:
        return prod(self.shape)

    @property
    def groups(self) -> list[int]:
        """The KV group of each layer."""
        return [self._places[layer][1] for layer in sorted(self._places)]

    def planes(self, layer: int) -> range:
        """The planes of one layer."""
        first = self.planes_of_layer * self._places[layer][0]
        return range(first, first + self.planes_of_layer)

    def group(self, layer: int) -> int:
        return self._places[layer][1]


def _planes(layout: KVLayout) -> tuple[tuple[int, ...], ...]:
    """What one token leaves in a layer, which is alike in all groups: they share their memory."""
    found = {group.planes for group in layout.groups}
    if len(found) != 1 or len({shape for planes in found for shape in planes}) != 1:
        raise ConfigError("the layers of this model keep caches of different shapes, which quire does not store yet.")
    return found.pop()
