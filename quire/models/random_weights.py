"""RandomWeights: tensors of the right shapes with values of no meaning, to measure a model without its weights."""

import zlib
from collections.abc import Mapping

import torch

from quire.layers.stored import StoredTensor
from quire.layers.weights import Expected

_DEVIATION = 0.02
"""What most families start their training with: activations stay of order 1 through any number of layers."""

WEIGHTS_SEED = 0
"""All engines of a service, and one that takes the place of another, must have the same weights."""


class RandomWeights:
    """Makes each tensor where it will be held, so that nothing is read or copied."""

    def __init__(self, expected: Mapping[str, Expected], dtype: torch.dtype, device: torch.device, seed: int) -> None:
        self._expected = expected
        self._dtype = dtype
        self._generator = torch.Generator(device)
        self._seed = seed

    def names(self) -> list[str]:
        return list(self._expected)

    def stored(self, name: str) -> StoredTensor:
        shape = self._expected[name].shape
        # by its name: tensors may be asked for in any order
        self._generator.manual_seed(zlib.crc32(name.encode(), self._seed))
        values = torch.empty(shape, dtype=self._dtype, device=self._generator.device)
        values.normal_(std=_DEVIATION, generator=self._generator)
        if len(shape) == 1:  # norms, mostly: they are around 1
            values += 1
        return StoredTensor(name, str(self._dtype).removeprefix("torch."), shape, values)
