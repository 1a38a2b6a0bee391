"""write_kv: the definition."""

from torch import Tensor


def write_kv(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Slot s is token s % block_size of block s // block_size."""
    keys.view(-1, *keys.shape[2:])[slots] = key.to(keys.dtype)
    values.view(-1, *values.shape[2:])[slots] = value.to(values.dtype)
