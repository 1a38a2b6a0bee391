"""CoreModel: a decoder that runs as programs of the native core, without modules. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quire.core.expert_load import ExpertLoad
from quire.ops.cpu.layouts import core_matrix
from quire.ops.cpu.packed_file import Bytes, PackedFile
from quire.ops.cpu.recording import Address, LinkedProgram, Memory, link
from quire.worker.core_memory import CoreMemory
from quire.worker.core_record import CoreRecord, RecordedMatrix

if TYPE_CHECKING:
    from quire.ops.cpu import _core

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class CoreStep:
    """The integers of a step. Sequences lie one after the other."""

    rows: Integers  # [sequences]
    input_ids: Integers  # [tokens]
    positions: Integers  # [tokens]
    starts: Integers  # [sequences + 1]
    lengths: Integers  # [sequences]: tokens in the cache once the step has written its own
    slots: list[Integers]  # by KV group: [tokens]
    tables: NDArray[np.int32]  # by KV group: [sequences, max_blocks]


def step_arrays(
    memory: CoreMemory, rows: Sequence[int], counts: Sequence[int], block_size: int, max_blocks: int
) -> CoreStep:
    """What a step reads that computes `counts` more tokens of `rows`."""
    num_tokens, sequences, groups = sum(counts), len(rows), len(memory.tables)
    max_blocks = min(max_blocks, memory.tables[0].shape[1])
    sizes = (*(num_tokens,) * (3 + groups), sequences, sequences, sequences + 1)
    numbers = np.empty(sum(sizes), dtype=np.int64)
    tables = np.empty((groups, sequences, max_blocks), dtype=np.int32)
    memory.rows.step_inputs(rows, counts, block_size, num_tokens, numbers.ctypes.data, tables.ctypes.data, max_blocks)
    ids, positions, _, *slots, row_ids, lengths, starts = np.split(numbers, np.cumsum(sizes)[:-1])
    return CoreStep(row_ids, ids, positions, starts, lengths, slots, tables)


@dataclass(frozen=True, slots=True)
class CorePrograms:
    """A decoder in parts that the core runs."""

    layers: LinkedProgram
    head: LinkedProgram
    words: "_core.Matrix"
    """In which tokens are looked up."""
    word_scale: float | None
    ropes: Sequence[tuple[Floats, float]]
    """Frequencies, and the factor of angles."""
    hidden_size: int
    num_logits: int
    logit_scale: float
    taps: tuple[int, ...] = ()
    """Layers of which it also tells what enters them."""


class CoreModel:
    """Of one decoder, with the memory of one worker."""

    def __init__(self, programs: CorePrograms, machine: "_core.Machine") -> None:
        self._programs = programs
        self._machine = machine

    def expert_load(self) -> ExpertLoad | None:
        """Since the start; None: it has no experts."""
        return self._programs.layers.expert_load()

    def hidden(self, step: CoreStep, prompts: range) -> tuple[Floats, Floats]:
        """Hidden states [tokens, hidden] after the last norm, and what enters the layers that are tapped, which is
        [tokens, taps, hidden]; `prompts` are the tokens of prompts."""
        x = self._embedded(step.input_ids)
        hidden = np.empty_like(x)
        given: dict[str, NDArray[Any]] = {
            "x": x,
            "hidden": hidden,
            "starts": step.starts,
            "lengths": step.lengths,
            "num_sequences": np.array([len(step.lengths)]),
        }
        for number, (cos, sin) in enumerate(self._angles(step.positions)):
            given[f"cos {number}"], given[f"sin {number}"] = cos, sin
        for number, (table, slots) in enumerate(zip(step.tables, step.slots, strict=True)):
            given[f"table {number}"], given[f"slots {number}"] = table, slots
        taps = self._programs.taps
        tapped = np.empty((len(x), len(taps), x.shape[1]), np.float32)
        begin, width = tapped.ctypes.data if taps else 0, x.shape[1]
        written = {
            tap_name(layer): (begin + place * width * x.itemsize, width * len(taps)) for place, layer in enumerate(taps)
        }
        self._run(self._programs.layers, given, len(x), prompts, written)
        return hidden, tapped

    def logits(self, hidden: Floats, prompts: range) -> Floats:
        """[rows, vocabulary] of hidden states; `prompts` of them are of prompts."""
        logits = np.empty((len(hidden), self._programs.num_logits), np.float32)
        self._run(self._programs.head, {"hidden": hidden, "logits": logits}, len(hidden), prompts)
        if self._programs.logit_scale != 1.0:
            logits *= np.float32(self._programs.logit_scale)
        return logits

    def _run(
        self,
        program: LinkedProgram,
        given: dict[str, NDArray[Any]],
        rows: int,
        prompts: range,
        more: Mapping[str, Address] = {},
    ) -> None:
        """`given` holds on to the arrays whose addresses the program gets beside `more`."""
        addresses = {name: (array.ctypes.data, array.strides[0] // array.itemsize) for name, array in given.items()}
        program.run(self._machine, rows, {**addresses, **more}, prompts)

    def _embedded(self, ids: Integers) -> Floats:
        x = np.empty((len(ids), self._programs.hidden_size), np.float32)
        self._machine.matrix_rows(self._programs.words, ids.ctypes.data, len(ids), x.ctypes.data)
        if self._programs.word_scale is not None:
            x *= np.float32(self._programs.word_scale)
        return x

    def _angles(self, positions: Integers) -> list[tuple[Floats, Floats]]:
        from quire.ops.cpu import _core

        found = []
        for frequencies, factor in self._programs.ropes:
            cos, sin = np.empty((2, len(positions), len(frequencies)), np.float32)
            _core.rope_angles(
                *(positions.ctypes.data, len(positions), frequencies.ctypes.data, 0, len(frequencies), factor),
                *(cos.ctypes.data, sin.ctypes.data),
            )
            found.append((cos, sin))
        return found


def programs_of(record: CoreRecord, file: PackedFile, memory: CoreMemory) -> CorePrograms:
    """A decoder as its record says, from its packed matrices. Raises LookupError where the file lacks one."""
    weights = [_aligned(weight) for weight in record.weights]
    addresses = [weight.ctypes.data for weight in weights]
    packed = [_found(file, matrix) for matrix in record.matrices]
    matrices = [
        core_matrix(matrix.form, data.ctypes.data, 0 if matrix.bias is None else addresses[matrix.bias])
        for matrix, data in zip(record.matrices, packed, strict=True)
    ]
    linked = Memory(addresses, matrices, [memory.cache(layer) for layer in record.caches])
    owners = (weights, packed, memory)
    return CorePrograms(
        layers=link(record.layers, linked, owners),
        head=link(record.head, linked, owners),
        words=matrices[record.words],
        word_scale=record.word_scale,
        ropes=[(_aligned(rope.frequencies), rope.factor) for rope in record.ropes],
        hidden_size=record.hidden_size,
        num_logits=record.num_logits,
        logit_scale=record.logit_scale,
    )


def tap_name(layer: int) -> str:
    """Of the output of a program to which what enters a layer is written."""
    return f"tap {layer}"


def _found(file: PackedFile, matrix: RecordedMatrix) -> Bytes:
    found = file.matrix(matrix.name, matrix.form)
    if found is None:
        raise LookupError(f"the file of packed matrices lacks {matrix.name}")
    return found


def _aligned(floats: bytes) -> Floats:
    """A copy that begins at a cache line, as tensors do."""
    room = np.empty(len(floats) + _ALIGNMENT, dtype=np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    room[start : start + len(floats)] = np.frombuffer(floats, dtype=np.uint8)
    return room[start : start + len(floats)].view(np.float32)
