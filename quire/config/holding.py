"""Holding: how weights lie in a device's memory, and what every matrix takes there. Arithmetic; decides nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from quire.config.dtypes import COMPUTE_DTYPES, dtype_bytes
from quire.config.facts import ModelFacts
from quire.core.ggml_types import IN_PLANES, PACKED, bytes_in_planes
from quire.core.quantized import multiplies_experts
from quire.spec.layout import HeadParts
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.quantization import WeightScheme

_PANEL, _GROUP = 16, 32
"""Rows and columns that the native core of CPUs pads to."""
_IN_4_BITS, _IN_8_BITS, _CONVERTED = "4 bits", "8 bits", "8 bits, converted"
_MXFP4 = "MXFP4"
_EXACT = {"Q4_0": _IN_4_BITS, "Q4_1": _IN_4_BITS, "Q4_K": _IN_4_BITS, "Q8_0": _IN_8_BITS, _MXFP4: _MXFP4}
"""Packed types that a layout of the core holds as they are; all others are converted to 8 bits."""
_GROUP_BYTES = {_IN_4_BITS: 20, _IN_8_BITS: 34, _CONVERTED: 34, _MXFP4: 17}
"""Bytes of 32 weights with their scale, and in 4 bits a minimum."""

_PLAIN = "float16"
"""In which the core holds numbers of 8 bits or fewer that it takes apart."""


@dataclass(frozen=True, slots=True)
class Holding:
    """In which numbers weights are held."""

    dtype: str
    """What activations are computed in, and plain weights are held in."""
    keep_packed: bool = False
    """Whether weights that are stored packed stay so; for the native core, plain ones of 16 bits too."""
    cpu_core: bool = False
    """Whether they lie in the layouts of the native core of CPUs."""
    on_gpu: bool = False
    """Whether kernels of GPUs multiply, which take some forms of packed experts only in `dtype`."""

    def matrix_bytes(self, model: ModelFacts, matrix: MatrixSpec) -> int:
        """All parts of a matrix and its bias."""
        bias = self.vector_bytes(matrix.rows) if matrix.bias else 0
        if self.cpu_core:
            layouts = [(self._core_layout(model, matrix, part), part.rows) for part in matrix.parts]
            if matrix.heads is not None:
                number_bytes = max(dtype_bytes(layout) for layout, _ in layouts)
                return _core_heads_numbers(matrix.heads, matrix.columns) * number_bytes
            return bias + _core_bytes(layouts, matrix.columns)
        return bias + sum(self._part_bytes(model, matrix, part) for part in matrix.parts)

    def vector_bytes(self, size: int) -> int:
        """A norm or a bias."""
        return size * dtype_bytes(self.dtype)

    def other_bytes(self, kind: str, size: int) -> int:
        """Weights that nothing describes: plain ones in `dtype`, others as they are stored."""
        return size // dtype_bytes(kind) * dtype_bytes(self.dtype) if kind in COMPUTE_DTYPES else size

    def _part_bytes(self, model: ModelFacts, matrix: MatrixSpec, part: Part) -> int:
        kind, num_elements = model.kind(part.weight_name), part.rows * matrix.columns
        scheme = model.schemes.get(part.name)
        is_expanded = self.on_gpu and matrix.experts and not _multiplies_experts(kind, scheme, matrix)
        if matrix.is_taken_apart or is_expanded:
            return num_elements * dtype_bytes(self.dtype)
        if self.keep_packed and scheme is not None:
            return scheme.held_bytes(part.rows, matrix.columns)
        # torch's experts are multiplied by as one stack, on CPUs too
        if self.keep_packed and kind in IN_PLANES and (self.on_gpu or matrix.experts):
            return bytes_in_planes(kind, num_elements)
        if self.keep_packed and kind in PACKED:
            return PACKED[kind].bytes_of(num_elements)
        return num_elements * dtype_bytes(self.dtype)

    def _core_layout(self, model: ModelFacts, matrix: MatrixSpec, part: Part) -> str:
        kind = model.kind(part.weight_name)
        scheme = model.schemes.get(part.name)
        if scheme is not None or kind in PACKED:
            if not self.keep_packed:
                return "float32"
            if matrix.heads is not None:
                return _PLAIN
            return _EXACT.get(kind, _CONVERTED) if scheme is None else _quantized_layout(scheme, matrix.columns)
        return kind if self.keep_packed and kind in COMPUTE_DTYPES else "float32"


def _multiplies_experts(kind: str, scheme: WeightScheme | None, matrix: MatrixSpec) -> bool:
    if scheme is None:
        return kind in IN_PLANES
    # sorted columns are each expert's own, and no stack has several orders
    group = scheme.group or matrix.columns
    return not scheme.act_order and multiplies_experts(scheme.codes, group, matrix.columns)


def _quantized_layout(scheme: WeightScheme, columns: int) -> str:
    """As `ops/cpu/quantized_rows.py` chooses: all but MXFP4 and whole numbers in groups of 32 go through floats."""
    in_groups = columns % _GROUP == 0 and (scheme.group or columns) % _GROUP == 0 and not scheme.act_order
    if scheme.method == "mxfp4" and in_groups:
        return _MXFP4
    return _IN_4_BITS if scheme.codes == "int4" and in_groups else _CONVERTED


def _core_bytes(parts: Sequence[tuple[str, int]], columns: int) -> int:
    """Neighbours that are held alike are one matrix, in whole panels of rows; `parts` are layouts and rows."""
    runs = groupby(parts, key=lambda part: part[0])
    return sum(_padded(sum(rows for _, rows in run), _PANEL) * _core_row_bytes(layout, columns) for layout, run in runs)


def _core_row_bytes(layout: str, columns: int) -> int:
    padded = _padded(columns, _GROUP)
    return padded // _GROUP * _GROUP_BYTES[layout] if layout in _GROUP_BYTES else padded * dtype_bytes(layout)


def _core_heads_numbers(heads: HeadParts, latent: int) -> int:
    """Those of each head's keys, transposed, and of its values, in whole panels."""
    keys = _padded(latent, _PANEL) * _padded(heads.key, _GROUP)
    values = _padded(heads.value, _PANEL) * _padded(latent, _GROUP)
    return heads.num_heads * (keys + values)


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
