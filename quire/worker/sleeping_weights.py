"""SleepingWeights: weights of a GPU in host memory, while their tensors stay what they are.

Storages are emptied and filled again in place, so every module, view and alias of a weight stays valid. Their addresses
do not: captured graphs hold addresses, and are captured anew.
"""

from collections.abc import Iterable
from itertools import accumulate

import torch
from torch import Tensor, nn

from quire.kvcache.swap import cuda_lock, cuda_unlock, zeroed_on_touch


class SleepingWeights:
    """Made when the weights go to the host; `wake_up` brings them back."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._storages = _storages_on_gpu(modules)
        self._sizes = [storage.nbytes() for storage in self._storages]
        self._host = zeroed_on_touch(sum(self._sizes))
        self._is_locked = bool(self._sizes) and cuda_lock(self._host.data_ptr(), self._host.nbytes)
        for storage, part in zip(self._storages, self._parts(), strict=True):
            part.copy_(_bytes_of(storage), non_blocking=True)
        if self._storages:
            torch.cuda.synchronize()
        for storage in self._storages:
            storage.resize_(0)

    @property
    def num_bytes(self) -> int:
        return sum(self._sizes)

    def wake_up(self) -> None:
        """Raises torch's OutOfMemoryError where something else has taken the room meanwhile."""
        for storage, part in zip(self._storages, self._parts(), strict=True):
            storage.resize_(len(part))
            _bytes_of(storage).copy_(part, non_blocking=True)
        if self._storages:
            torch.cuda.synchronize()
        if self._is_locked:
            cuda_unlock(self._host.data_ptr())

    def _parts(self) -> list[Tensor]:
        ends = list(accumulate(self._sizes))
        return [self._host[end - size : end] for size, end in zip(self._sizes, ends, strict=True)]


def _storages_on_gpu(modules: Iterable[nn.Module]) -> list[torch.UntypedStorage]:
    """Each once, however many tensors share it."""
    tensors = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
    found = {tensor.data_ptr(): tensor.untyped_storage() for tensor in tensors if tensor.is_cuda and tensor.nbytes}
    return list({storage.data_ptr(): storage for storage in found.values()}.values())


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
