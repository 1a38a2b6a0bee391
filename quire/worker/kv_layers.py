"""The layers of a model's KV, as attention reads and writes them."""

from collections.abc import Sequence

import torch

from quire.kvcache.storage import KVStorage
from quire.layers.batch import KVLayer
from quire.models.loading.kv_scales import KVScale


def kv_layers(
    storage: KVStorage, num_layers: int, scales: Sequence[KVScale] | None, device: torch.device
) -> list[KVLayer]:
    """`scales` are what the keys and values of each layer are divided by, where they are stored in fp8."""
    divisors = None if scales is None else torch.tensor(scales, dtype=torch.float32, device=device)
    layers = []
    for index in range(num_layers):
        planes, group = storage.layer(index)
        layers.append(KVLayer(planes[0], planes[-1], group, None if divisors is None else divisors[index]))
    return layers
