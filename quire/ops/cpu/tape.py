"""Tape: a model's forward, recorded once as operations of the native core and then run as one call.

A model is recorded by calling it with `Value`s instead of tensors. Ops on them come here through the dispatch table,
as those on tensors of any device go to their kernels, so a model needs no second description of itself. Between the
hundreds of operations of a step no Python runs, which for a small model is most of the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from quire.ops.cpu.places import Register, arrange

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

    def split(self, sizes: Sequence[int], dim: int) -> list["Value"]:
        """Neighbouring heads, `sizes` of them at a time."""
        if dim != 1 or len(self.dims) != 2:
            raise NotRecordable(f"split of {self.shape} along {dim}")
        parts, column = [], self.column
        for size in sizes:
            parts.append(replace(self, column=column, dims=(size, self.dims[1])))
            column += size * self.dims[1]
        return parts

    def __add__(self, other: object) -> "Value":
        if not isinstance(other, Value) or other.width != self.width:
            raise NotRecordable(f"the sum of {self.shape} and {getattr(other, 'shape', type(other).__name__)}")
        result = self.tape.value(*self.dims)
        self.tape.record("add", (self, other), result, a=self, b=other, to=result, columns=self.width)
        return result

    def __mul__(self, factor: object) -> "Value":
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


class Tape:
    """Collects operations; `finish` lays out their registers and makes the program."""

    def __init__(self) -> None:
        self._operations: list[_Operation] = []
        self._registers: list[Register] = []
        self._inputs: dict[str, int] = {}
        self._packed: dict[tuple[int, int, int, int], Value] = {}
        self._kept: list[object] = []
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

    def keep(self, *owners: object) -> None:
        """Hold on to what the program has addresses of."""
        self._kept.extend(owners)

    def record(self, name: str, reads: Sequence[Value], writes: Value, *, together: bool = False, **given: Any) -> None:
        """Add one operation. Those that are not `together` work on rows, and share a step with their neighbours."""
        if together or not self._in_rows:
            self._step += 1
        self._in_rows = not together
        for value in (*reads, writes):
            value.register.used_at(self._step)
        self._operations.append(_Operation(name, given))

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
        from quire.ops.cpu import _core

        program = _core.Program(arrange(self._registers))
        for operation in self._operations:
            arguments = {name: _argument(value) for name, value in operation.arguments.items()}
            getattr(program, operation.name)(**arguments)
        return TapeProgram(program, tuple(self._inputs), tuple(self._kept))

    def _register(self, row_bytes: int) -> Register:
        register = Register(len(self._registers), row_bytes)
        self._registers.append(register)
        return register


_GROUP = 32


def _argument(value: object) -> object:
    if isinstance(value, Value):
        return [value.register.offset, value.register.row_bytes, value.column * FLOAT]
    return value


@dataclass(frozen=True, slots=True)
class TapeProgram:
    """What was recorded, ready to run as often as needed, one run at a time."""

    program: "_core.Program"
    inputs: tuple[str, ...]
    kept: tuple[object, ...]

    def run(self, machine: "_core.Machine", rows: int, given: Mapping[str, Tensor], prompts: range = range(0)) -> None:
        """Every input is contiguous in its last dimension; outputs are inputs that the program writes.

        `prompts` are rows that the core may compute in the way that is fastest for many.
        """
        inputs = [_address(given[name]) for name in self.inputs]
        self.program.run(machine, rows, prompts.start, prompts.stop, inputs)


def _address(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.stride(0) if tensor.dim() else 1
