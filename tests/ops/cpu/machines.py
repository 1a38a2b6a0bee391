"""Machines of every instruction set that this one runs, and ops as programs of one operation on them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from quire.ops.cpu import native
from quire.ops.cpu.matrix import StoredRows
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.cpu.packing import Packing
from quire.ops.cpu.tape import Tape, TapeInput, Value

_core = native.load()

needs_core = pytest.mark.skipif(
    _core is None, reason="quire was built without its native core: this machine had no C++ compiler for it"
)
VARIANTS: list[str] = _core.variants() if _core is not None else ["none"]
every_variant = pytest.mark.parametrize("variant", VARIANTS)
every_thread_count = pytest.mark.parametrize("threads", [1, 2, 3])


def machine(variant: str, threads: int = 1) -> Any:
    """A machine of its own: its threads end with it."""
    assert _core is not None
    return _core.Machine(threads, [], variant)


def pack(
    variant: str, parts: Sequence[StoredRows], columns: int, bias: Tensor | None = None, threads: int = 1
) -> PackedLinear:
    """A layer's matrix, packed in memory."""
    return Packing(machine(variant, threads)).linear("layer", parts, columns, bias)


def rounds_to_brains(variant: str) -> bool:
    """Whether activations meet float16 and bfloat16 matrices, and those of prompts all but float32, in tiles of
    bfloat16."""
    return variant == "amx"


def run_recorded(
    variant: str,
    op: Callable[..., Value],
    *tensors: Tensor,
    threads: int = 1,
    given: Mapping[str, Tensor] | None = None,
    prompts: range = range(0),
) -> Tensor:
    """`op` of tensors [rows, ...], recorded on a tape of its own. `given` are its other inputs."""
    tape = Tape()
    rows = tensors[0].shape[0]
    inputs = {f"tensor {number}": tensor.flatten(1) for number, tensor in enumerate(tensors)}

    def copied(value: Value) -> Value:
        """In a register of the arena: ops may change it, and results may be parts of a register."""
        name = f"zeros {value.width}"
        inputs[name] = torch.zeros(rows, value.width)
        return value + tape.given(TapeInput(name), *value.dims)

    names = list(inputs)
    result = copied(
        op(
            *(
                copied(tape.given(TapeInput(name), *tensor.shape[1:]))
                for name, tensor in zip(names, tensors, strict=True)
            )
        )
    )
    output = torch.full((rows, result.width), torch.nan)
    tape.give(result, TapeInput("out"))
    tape.finish().run(machine(variant, threads), rows, {**inputs, **(given or {}), "out": output}, prompts)
    return output.view(rows, *result.dims)
