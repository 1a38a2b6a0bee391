"""Recording: a program of the native core as plain data, which can be kept and linked again. No torch.

Its operations refer to weights, matrices and caches by number; `link` puts those of a process in their places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from quire.core.expert_load import ExpertLoad
from quire.core.kv_bytes import INT8_SCALE

if TYPE_CHECKING:
    from quire.ops.cpu import _core

CACHE_TYPES = {"float32": 0, "float16": 1, "bfloat16": 2, "int8": 3}
"""As the core numbers what a cache stores keys and values in."""

Address = tuple[int, int]
"""Of an input: where it begins, and the elements from one row to the next."""


def paged_cache(dtype: str, keys: int, values: int, block: tuple[int, ...]) -> "_core.PagedCache":
    """A cache whose blocks are [block_size, kv_heads, what a vector takes], or of latents [block_size, what one takes],
    at these addresses."""
    from quire.ops.cpu import _core

    block_size, *heads, width = block
    kv_heads = heads[0] if heads else 1
    head_dim = width - INT8_SCALE if dtype == "int8" else width
    return _core.PagedCache(CACHE_TYPES[dtype], keys, values, block_size, kv_heads, head_dim)


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """One call of a method of the core's `Program`."""

    name: str
    numbers: dict[str, int | float | bool | list[int]]
    """Arguments that are the same in every process; a list is a place in the arena."""
    weights: dict[str, int] = {}
    """Arguments that are addresses of float32 vectors, by their number among the recording's."""
    matrix: int | None = None
    cache: int | None = None
    stacks: dict[str, list[int]] = {}
    """Arguments that are several matrices, one below the other."""


class Recording(msgspec.Struct, frozen=True):
    """What a program does, and the names of its inputs."""

    bytes_per_row: int
    inputs: tuple[str, ...]
    operations: list[Operation]


@dataclass(frozen=True, slots=True)
class Memory:
    """What recordings refer to, as one process has it."""

    weights: Sequence[int]
    """Addresses."""
    matrices: Sequence["_core.Matrix"]
    caches: Sequence["_core.PagedCache"]


@dataclass(frozen=True, slots=True)
class LinkedProgram:
    """Ready to run as often as needed, one run at a time."""

    program: "_core.Program"
    inputs: tuple[str, ...]
    owners: object
    """Whoever holds the memory that the program has addresses of."""
    expert_layers: tuple[int, ...] = ()
    """Which of its layers have experts."""

    def run(self, machine: "_core.Machine", rows: int, given: Mapping[str, Address], prompts: range = range(0)) -> None:
        """Every input is contiguous in its last dimension; outputs are inputs that the program writes.

        `prompts` are rows that the core may compute in the way that is fastest for many.
        """
        inputs = [given[name] for name in self.inputs]
        self.program.run(machine, rows, prompts.start, prompts.stop, inputs)

    def expert_load(self) -> ExpertLoad | None:
        """Since it was linked; None: it has no experts."""
        if not self.expert_layers:
            return None
        return ExpertLoad(self.expert_layers, np.array(self.program.expert_load(), np.float64))


def link(recording: Recording, memory: Memory, owners: object) -> LinkedProgram:
    """The program that a recording describes, on this memory."""
    from quire.ops.cpu import _core

    program = _core.Program(recording.bytes_per_row)
    for operation in recording.operations:
        arguments: dict[str, Any] = dict(operation.numbers)
        arguments |= {name: memory.weights[number] for name, number in operation.weights.items()}
        if operation.matrix is not None:
            arguments["matrix"] = memory.matrices[operation.matrix]
        for name, numbers in operation.stacks.items():
            arguments[name] = [memory.matrices[number] for number in numbers]
        if operation.cache is not None:
            arguments["cache"] = memory.caches[operation.cache]
        getattr(program, operation.name)(**arguments)
    return LinkedProgram(program, recording.inputs, owners, _expert_layers(recording))


def _expert_layers(recording: Recording) -> tuple[int, ...]:
    """Every layer has one attention, and experts come after it."""
    layers, layer = [], -1
    for operation in recording.operations:
        layer += operation.name == "attention"
        if operation.name == "experts":
            layers.append(layer)
    return tuple(layers)
