"""write_kv: the definition."""

from torch import Tensor

from quire.ops.reference.kv_numbers import write_slots


def write_kv(
    key: Tensor, value: Tensor, keys: Tensor, values: Tensor, slots: Tensor, scales: Tensor | None = None
) -> None:
    key_scale, value_scale = (None, None) if scales is None else scales
    write_slots(key, keys, slots, key_scale)
    write_slots(value, values, slots, value_scale)
