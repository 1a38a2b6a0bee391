"""Tape: a model's forward, recorded once as operations of the native core and then run as one call.

A model is recorded by calling it with `Value`s instead of tensors. Ops on them come here through the dispatch table,
as those on tensors of any device go to their kernels, so a model needs no second description of itself. Between the
hundreds of operations of a step no Python runs, which for a small model is most of the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from quire.ops.cpu.matrix import PackedMatrix
from quire.ops.cpu.places import Register, arrange
from quire.ops.cpu.recording import Address, LinkedProgram, Memory, Operation, Recording, link, paged_cache

if TYPE_CHECKING:
    from quire.ops.cpu import _core

FLOAT = 4
ROWS = -1
"""What a recorded value gives as the number of its rows: it is known when the program runs."""


class NotRecordable(Exception):
    """The model does something that the core has no operation for."""


@dataclass(frozen=True, slots=True)
class TapeDevice:
    """What a value says instead of a tensor's device; the dispatch table has a column of this name."""

    type: str = "tape"


@dataclass(frozen=True, slots=True)
class TapeInput:
    """A tensor that every run brings with it."""

    name: str
    width: int = 0
    """Columns, where the recording needs to know."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (ROWS, self.width)


@dataclass(frozen=True, slots=True)
class Value:
    """Float32 [rows, width], or [rows, heads, size]: columns of a register that the program will fill."""

    tape: "Tape"
    register: Register
    column: int
    dims: tuple[int, ...]
    device: TapeDevice = field(default_factory=TapeDevice)

    @property
    def shape(self) -> tuple[int, ...]:
        return (ROWS, *self.dims)

    @property
    def width(self) -> int:
        width = 1
        for size in self.dims:
            width *= size
        return width

    def view(self, *shape: int) -> "Value":
        """The same columns in another shape behind the rows."""
        known = 1
        for size in shape[1:]:
            known *= 1 if size == -1 else size
        if self.width % known or (-1 not in shape[1:] and self.width != known):
            raise NotRecordable(f"a view of {self.shape} as {shape}")
        dims = tuple(self.width // known if size == -1 else size for size in shape[1:])
        return replace(self, dims=dims)

    reshape = view

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def to(self, dtype: torch.dtype) -> "Value":
        """Itself: all values are float32."""
        if dtype != self.dtype:
            raise NotRecordable(f"{dtype} of {self.shape}")
        return self

    def split(self, sizes: Sequence[int], dim: int) -> list["Value"]:
        """Neighbouring heads, or columns where there are no heads, `sizes` of them at a time."""
        if dim != 1 or sum(sizes) != self.dims[0]:
            raise NotRecordable(f"split of {self.shape} along {dim} as {sizes}")
        parts, column, step = [], self.column, self.width // self.dims[0]
        for size in sizes:
            parts.append(replace(self, column=column, dims=(size, *self.dims[1:])))
            column += size * step
        return parts

    def from_column(self, first: int) -> "Value":
        """The same heads, as far apart as they are, each from its column `first` on."""
        return replace(self, column=self.column + first)

    def __getitem__(self, places: object) -> "Value":
        raise NotRecordable(f"{places} of {self.shape}")

    def __add__(self, other: object) -> "Value":
        if not isinstance(other, Value) or other.width != self.width:
            raise NotRecordable(f"the sum of {self.shape} and {getattr(other, 'shape', type(other).__name__)}")
        result = self.tape.value(*self.dims)
        self.tape.record("add", (self, other), result, a=self, b=other, to=result, columns=self.width)
        return result

    def sigmoid(self) -> "Value":
        result = self.tape.value(*self.dims)
        self.tape.record("sigmoid", (self,), result, from_=self, to=result, columns=self.width)
        return result

    def __mul__(self, factor: object) -> "Value":
        """By a number, or each row by one of its own."""
        if isinstance(factor, Value) and 1 in (self.width, factor.width):
            scaled, factor = (self, factor) if factor.width == 1 else (factor, self)
            result = self.tape.value(*scaled.dims)
            given: dict[str, Any] = {"from_": scaled, "factor": factor, "to": result, "columns": scaled.width}
            self.tape.record("scale_row", (scaled, factor), result, **given)
            return result
        if not isinstance(factor, (int, float)):
            raise NotRecordable(f"the product of {self.shape} and {getattr(factor, 'shape', type(factor).__name__)}")
        result = self.tape.value(*self.dims)
        self.tape.record("scale", (self,), result, from_=self, to=result, columns=self.width, factor=float(factor))
        return result

    __rmul__ = __mul__


@dataclass(frozen=True, slots=True)
class _Operation:
    name: str
    arguments: dict[str, Any]
    weights: dict[str, int]
    matrix: int | None
    cache: int | None
    stacks: dict[str, list[int]]


class References:
    """The memory that tapes have recorded operations on, by number; several tapes of a model may share it."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []
        self.matrices: list[PackedMatrix] = []
        self.caches: list[tuple[Tensor, Tensor]] = []

    def memory(self) -> Memory:
        """As the core takes it."""
        return Memory(
            [weight.data_ptr() for weight in self.weights],
            [matrix.core for matrix in self.matrices],
            [_paged_cache(keys, values) for keys, values in self.caches],
        )


class Tape:
    """Collects operations; `finish` lays out their registers and makes the program."""

    def __init__(self, references: References | None = None) -> None:
        self._references = references or References()
        self._operations: list[_Operation] = []
        self._registers: list[Register] = []
        self._inputs: dict[str, int] = {}
        self._packed: dict[tuple[int, int, int, int], Value] = {}
        self._step = 0
        self._in_rows = False

    def value(self, *dims: int) -> Value:
        """A new value that nothing has written yet."""
        width = 1
        for size in dims:
            width *= size
        return Value(self, self._register(width * FLOAT), 0, dims)

    def given(self, tensor: TapeInput, *dims: int) -> Value:
        """A value that every run brings with it, read where it is."""
        value = self.value(*dims)
        value.register.bind(self.input(tensor))
        return value

    def give(self, value: Value, tensor: TapeInput) -> None:
        """Have the program write `value`, a whole register, straight into a tensor of the run."""
        if value.width * FLOAT != value.register.value_bytes or value.register.is_bound:
            raise NotRecordable(f"{value.shape} as a result of its own")
        value.register.bind(self.input(tensor))

    def input(self, given: TapeInput) -> int:
        """The number by which operations know an input."""
        return self._inputs.setdefault(given.name, len(self._inputs))

    def record(
        self,
        name: str,
        reads: Sequence[Value],
        writes: Value | None,
        *,
        together: bool = False,
        weights: Mapping[str, Tensor] | None = None,
        matrix: PackedMatrix | None = None,
        cache: tuple[Tensor, Tensor] | None = None,
        stacks: Mapping[str, Sequence[PackedMatrix]] | None = None,
        **given: Any,
    ) -> None:
        """Add one operation. Those that are not `together` work on rows, and share a step with their neighbours.

        `weights` are float32 vectors by argument, `cache` are keys and values, `stacks` are matrices one below the
        other; the program holds on to all of them. One that writes nothing leaves its results in the core's own memory.
        """
        if together or not self._in_rows:
            self._step += 1
        self._in_rows = not together
        for value in (*reads, *(() if writes is None else (writes,))):
            value.register.used_at(self._step)
        known = self._references
        numbers = {argument: _number_in(known.weights, weight) for argument, weight in (weights or {}).items()}
        matrix_number = None if matrix is None else _number_in(known.matrices, matrix)
        cache_number = None if cache is None else _number_in(known.caches, cache)
        stacked = {
            argument: [_number_in(known.matrices, each) for each in stack] for argument, stack in (stacks or {}).items()
        }
        self._operations.append(_Operation(name, given, numbers, matrix_number, cache_number, stacked))

    def packed(self, x: Value, layout: int, is_dense: bool) -> Value:
        """`x` as a matrix of this layout wants it; made once for all matrices that want the same."""
        key = (x.register.number, x.column, x.width, layout if is_dense else -1)  # bytes are the same for all
        if key not in self._packed:
            from quire.ops.cpu import _core

            size = max(_core.most_row_bytes(x.width), x.width * FLOAT + 2 * _GROUP * FLOAT if is_dense else 0)
            packed = Value(self, self._register(size), 0, (x.width,))
            self.record("pack", (x,), packed, from_=x, to=packed, columns=x.width, layout=layout)
            self._packed[key] = packed
        return self._packed[key]

    def finish(self) -> "TapeProgram":
        """The program of everything that was recorded."""
        arena = arrange(self._registers)
        operations = [
            Operation(
                each.name,
                {name: _argument(value) for name, value in each.arguments.items()},
                *(each.weights, each.matrix, each.cache, each.stacks),
            )
            for each in self._operations
        ]
        recording = Recording(arena, tuple(self._inputs), operations)
        return TapeProgram(recording, link(recording, self._references.memory(), self._references))

    def _register(self, row_bytes: int) -> Register:
        register = Register(len(self._registers), row_bytes)
        self._registers.append(register)
        return register


_GROUP = 32


def _argument(value: Any) -> Any:
    if isinstance(value, Value):
        return [value.register.offset, value.register.row_bytes, value.column * FLOAT]
    return value


def _number_in(known: list[Any], thing: object) -> int:
    known.append(thing)
    return len(known) - 1


def _paged_cache(keys: Tensor, values: Tensor) -> "_core.PagedCache":
    dtype = str(keys.dtype).removeprefix("torch.")
    return paged_cache(dtype, keys.data_ptr(), values.data_ptr(), tuple(keys.shape[1:]))


@dataclass(frozen=True, slots=True)
class TapeProgram:
    """What was recorded, ready to run on tensors as often as needed, one run at a time."""

    recording: Recording
    linked: LinkedProgram

    def run(self, machine: "_core.Machine", rows: int, given: Mapping[str, Tensor], prompts: range = range(0)) -> None:
        """As `LinkedProgram.run`."""
        addresses = {name: _address(given[name]) for name in self.linked.inputs}
        self.linked.run(machine, rows, addresses, prompts)


def _address(tensor: Tensor) -> Address:
    return tensor.data_ptr(), tensor.stride(0) if tensor.dim() else 1
