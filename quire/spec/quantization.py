"""WeightScheme: how the weight of one Linear is quantized, and which tensors of a checkpoint hold it. No torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from quire.core.plugins import load_plugin
from quire.core.quantized import PLANES, Activations, Codes
from quire.spec.model import ModelSpec

Method = Literal["fp8", "int8", "packed", "gptq", "awq", "nf4", "llm_int8", "mxfp4", "online"] | str
"""Who laid out the tensors; `online`: nobody yet, a plain weight is quantized when it is loaded. Others are plugins."""

_FLOATS = ("float32", "float16", "bfloat16")
_STORED_CODES = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
_WORD = 32
"""Bits of the whole numbers that GPTQ, AWQ and compressed-tensors pack codes into."""
ANY = -1
"""A size that the format leaves open."""


@dataclass(frozen=True, slots=True)
class StoredAs:
    """A tensor that holds some of a quantized weight."""

    ending: str
    """What follows the name of the Linear."""
    shape: tuple[int, ...]
    """Sizes of 1 may be left out in the file."""
    kinds: tuple[str, ...]
    """Dtypes it may have."""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class WeightScheme:
    """[rows, columns] in `codes`; each scale covers `block_rows` rows and `group` columns of it."""

    method: Method
    codes: Codes
    group: int | None = None
    """None: all columns."""
    block_rows: int | None = 1
    """None: all rows."""
    has_zeros: bool = False
    """Whether codes have a zero point each group instead of being signed."""
    activations: Activations = "as they are"
    act_order: bool = False
    """Whether columns are in groups by a list instead of by their place (GPTQ's act-order)."""
    zeros_less_one: bool = False
    """Whether zero points are stored less 1, as GPTQ's first format does."""
    lacks: frozenset[str] = frozenset()
    """Endings of optional tensors that the checkpoint does not have."""

    @property
    def bits(self) -> int:
        return sum(PLANES[self.codes])

    def groups(self, columns: int) -> int:
        """Scales of a row."""
        return 1 if self.group is None else -(-columns // self.group)

    def tensors(self, rows: int, columns: int) -> list[StoredAs]:
        """What a checkpoint holds for a weight of this shape."""
        stored = _TENSORS.get(self.method) or _of_plugin(self.method)
        return [each for each in stored(self, rows, columns) if each.ending not in self.lacks]

    def held_bytes(self, rows: int, columns: int) -> int:
        """What `ops/quantized_matrix.py` takes: codes, scales and zero points, and the order of columns."""
        scale = 2 if self.codes in ("int4", "fp4") else 4
        each = scale + (1 if self.has_zeros else 0)
        order = 8 * columns if self.act_order else 0
        return rows * columns * self.bits // 8 + rows * self.groups(columns) * each + order

    def __str__(self) -> str:
        kind = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8 e5m2", "fp4": "mxfp4"}.get(self.codes, self.codes)
        return kind if self.method == "online" else f"{kind} {_SPELLED.get(self.method, '')}".rstrip()


_SPELLED = {"gptq": "gptq", "awq": "awq", "nf4": "bitsandbytes", "llm_int8": "bitsandbytes"}


Online = Literal["fp8", "int8"]
"""What plain weights can be quantized to as they are loaded."""

_ONLINE: dict[Online, WeightScheme] = {
    "fp8": WeightScheme("online", "fp8_e4m3", activations="a scale each token"),
    "int8": WeightScheme("online", "int8", activations="a scale each token"),
}


def online_schemes(spec: ModelSpec, quantization: Online) -> dict[str, WeightScheme]:
    """Of every matrix in a layer but those that every rank has whole, such as routers, and those that are held plain;
    embeddings and the head stay as they are.
    """
    scheme = _ONLINE[quantization]
    in_layers = (matrix for matrix in spec.matrices() if matrix.layer is not None)
    matrices = (matrix for matrix in in_layers if matrix.cut != "none" and matrix.heads is None)
    return {part.name: scheme for matrix in matrices for part in matrix.parts}


def _plain_codes(scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
    """One number a byte: the older fp8 style, and compressed-tensors."""
    blocks = 1 if scheme.block_rows is None else -(-rows // scheme.block_rows)
    grid = (blocks, scheme.groups(columns))
    tensors = [
        StoredAs("weight", (rows, columns), (_STORED_CODES.get(scheme.codes, "int8"),)),
        StoredAs("weight_scale", grid, _FLOATS),
    ]
    if scheme.method == "int8":
        tensors.append(StoredAs("weight_zero_point", grid, ("int8",), optional=not scheme.has_zeros))
    return tensors + _input_scale(scheme)


def _packed(scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
    """compressed-tensors' whole numbers of 32 bits."""
    groups = scheme.groups(columns)
    tensors = [
        StoredAs("weight_packed", (rows, _words(columns, scheme)), ("int32",)),
        StoredAs("weight_scale", (rows, groups), _FLOATS),
        StoredAs("weight_shape", (2,), ("int64", "int32"), optional=True),
        StoredAs("weight_g_idx", (columns,), ("int32", "int64"), optional=True),
    ]
    if scheme.has_zeros:
        tensors.append(StoredAs("weight_zero_point", (_words(rows, scheme), groups), ("int32",)))
    return tensors + _input_scale(scheme)


def _input_scale(scheme: WeightScheme) -> list[StoredAs]:
    return [StoredAs("input_scale", (1,), _FLOATS)] if scheme.activations == "one scale" else []


def _gptq(scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
    groups = scheme.groups(columns)
    return [
        StoredAs("qweight", (_words(columns, scheme), rows), ("int32",)),
        StoredAs("qzeros", (groups, _words(rows, scheme)), ("int32",)),
        StoredAs("scales", (groups, rows), _FLOATS),
        StoredAs("g_idx", (columns,), ("int32", "int64"), optional=not scheme.act_order),
    ]


def _awq(scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
    groups = scheme.groups(columns)
    return [
        StoredAs("qweight", (columns, _words(rows, scheme)), ("int32",)),
        StoredAs("qzeros", (groups, _words(rows, scheme)), ("int32",)),
        StoredAs("scales", (groups, rows), _FLOATS),
    ]


def _nf4(scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
    return [
        StoredAs("weight", ((rows * columns + 1) // 2, 1), ("uint8",)),
        StoredAs("weight.absmax", (ANY,), ("float32", "uint8")),
        StoredAs("weight.quant_map", (16,), ("float32",)),
        StoredAs("weight.quant_state.bitsandbytes__nf4", (ANY,), ("uint8",)),
        StoredAs("weight.nested_absmax", (ANY,), ("float32",), optional=True),
        StoredAs("weight.nested_quant_map", (256,), ("float32",), optional=True),
    ]


def _llm_int8(scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
    return [
        StoredAs("weight", (rows, columns), ("int8",)),
        StoredAs("SCB", (rows,), ("float32",)),
        StoredAs("weight_format", (1,), ("uint8",), optional=True),
    ]


def _mxfp4(scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
    assert scheme.group is not None
    groups = columns // scheme.group
    return [
        StoredAs("blocks", (rows, groups, scheme.group // 2), ("uint8",)),
        StoredAs("scales", (rows, groups), ("uint8",)),
    ]


def _online(scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
    return [StoredAs("weight", (rows, columns), ("float64", *_FLOATS))]


def _of_plugin(method: str) -> Callable[[WeightScheme, int, int], list[StoredAs]]:
    """A plugin's format, which is a WeightFormat: it made the scheme."""
    plugin: Any = load_plugin("quire.formats", method)
    assert plugin is not None, f"nobody has the format {method}"
    stored: Callable[[WeightScheme, int, int], list[StoredAs]] = plugin.tensors
    return stored


def _words(count: int, scheme: WeightScheme) -> int:
    return -(-count * scheme.bits // _WORD)


_TENSORS: dict[Method, Callable[[WeightScheme, int, int], list[StoredAs]]] = {
    "fp8": _plain_codes,
    "int8": _plain_codes,
    "packed": _packed,
    "gptq": _gptq,
    "awq": _awq,
    "nf4": _nf4,
    "llm_int8": _llm_int8,
    "mxfp4": _mxfp4,
    "online": _online,
}
