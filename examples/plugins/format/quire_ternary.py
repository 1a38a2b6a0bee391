"""A weight format for quire: each weight is -1, 0 or 1 times the scale of its row. Four of them are in a byte."""

from collections.abc import Callable, Mapping
from typing import Any

from quire.core.errors import CheckpointError
from quire.spec.quantization import StoredAs, WeightScheme
from quire.spec.weight_format import WeightFormat

QUIRE_PLUGIN_API = 1
NAME = "ternary"
IN_A_BYTE = 4
_SCHEME = WeightScheme(NAME, "int8")
"""Held in 8 bits, with one scale for all columns of a row: what quire has kernels for."""


class Ternary(WeightFormat):
    """`quantization_config` is {"quant_method": "ternary"}, with names of Linears that stay plain under `plain`."""

    def schemes(self, config: Mapping[str, Any], source: str) -> Callable[[str, bool], WeightScheme | None]:
        plain = config.get("plain", [])
        if not isinstance(plain, list):
            raise CheckpointError(f"{source}: plain is {plain!r}, but it must be a list of names.")
        return lambda name, in_layer: _SCHEME if in_layer and name not in plain else None

    def tensors(self, scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
        return [
            StoredAs("weight_trits", (rows, -(-columns // IN_A_BYTE)), ("uint8",)),
            StoredAs("weight_scale", (rows,), ("float32",)),
        ]

    def read(self, scheme: WeightScheme, tensors: Mapping[str, Any], name: str) -> Any:
        import torch

        from quire.ops.quantized_matrix import QuantizedMatrix

        packed, scales = tensors["weight_trits"], tensors["weight_scale"]
        shifts = torch.arange(0, 8, 2, device=packed.device, dtype=torch.uint8)
        trits = (packed[..., None] >> shifts & 3).flatten(1).to(torch.int8) - 1
        if bool((trits > 1).any()):
            raise CheckpointError(f"{name}: two bits of weight_trits say 3, which stands for nothing; it is damaged.")
        columns = trits.shape[1]
        return QuantizedMatrix("int8", trits.contiguous(), scales.float()[:, None], None, columns, columns)


FORMAT = Ternary()
