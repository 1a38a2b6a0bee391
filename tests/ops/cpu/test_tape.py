"""Recording: shapes of values, what is done once for all, and programs that run again with other rows and inputs."""

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quire.ops.cpu.tape import ROWS, NotRecordable, Tape, TapeInput, Value
from quire.ops.functional import activate, packed_linear, rms_norm
from tests.ops.cpu.blocks import float_rows
from tests.ops.cpu.machines import VARIANTS, every_variant, machine, needs_core, pack, run_recorded


def loaded(tape: Tape, name: str, *dims: int) -> Value:
    return tape.given(TapeInput(name), *dims)


def stored(tape: Tape, name: str, value: Value) -> None:
    tape.give(value, TapeInput(name))


def test_shapes_of_values() -> None:
    x = Tape().value(6, 4)
    assert x.shape == (ROWS, 6, 4)
    assert x.width == 24
    assert x.device.type == "tape"
    assert x.reshape(x.shape[0], -1).shape == (ROWS, 24)
    assert x.view(ROWS, -1, 8).shape == (ROWS, 3, 8)
    assert x.view(ROWS, 2, 12).shape == (ROWS, 2, 12)


def test_split_heads_are_neighbouring_columns() -> None:
    x = Tape().value(6, 4)
    parts = x.split((3, 1, 2), dim=1)
    assert [part.column for part in parts] == [0, 12, 16]
    assert [part.dims for part in parts] == [(3, 4), (1, 4), (2, 4)]
    assert all(part.register is x.register for part in parts)
    again = parts[2].split((1, 1), dim=1)
    assert [part.column for part in again] == [16, 20]
    assert x.from_column(3).split((1, 5), dim=1)[1].column == 7


def test_split_columns_are_neighbours() -> None:
    first, last = Tape().value(8).split((5, 3), dim=1)
    assert (first.column, first.dims, last.column, last.dims) == (0, (5,), 5, (3,))


def test_what_cannot_be_recorded_is_refused() -> None:
    x = Tape().value(8)
    with pytest.raises(NotRecordable, match="split"):
        x.split((4, 5), dim=1)
    with pytest.raises(NotRecordable, match="split"):
        x.view(ROWS, 2, 4).split((1, 1), dim=0)
    with pytest.raises(NotRecordable, match=r"sum of \(-1, 8\) and torch.Size\(\[8\]\)"):
        x + torch.ones(8)
    with pytest.raises(NotRecordable, match="float"):
        x + 1.0
    with pytest.raises(NotRecordable, match="sum"):
        x + x.tape.value(4)
    with pytest.raises(NotRecordable, match=r"product of \(-1, 8\) and torch.Size\(\[8\]\)"):
        x * torch.ones(8)
    with pytest.raises(NotRecordable, match="product"):
        x * x
    with pytest.raises(NotRecordable, match="view"):
        x.view(ROWS, 3, 4)


def test_a_result_is_a_whole_register_of_its_own() -> None:
    tape = Tape()
    x = tape.given(TapeInput("x"), 8)
    with pytest.raises(NotRecordable, match="result"):
        tape.give(x, TapeInput("y"))
    for half in (x + x).view(ROWS, 2, 4).split((1, 1), dim=1):
        with pytest.raises(NotRecordable, match="result"):
            tape.give(half, TapeInput("y"))


def test_inputs_have_one_number_each() -> None:
    tape = Tape()
    numbers = [tape.input(TapeInput(name)) for name in ("a", "b", "a", "c", "b")]
    assert numbers == [0, 1, 0, 2, 1]


@needs_core
def test_a_value_is_packed_once_for_matrices_that_want_it_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    record = Tape.record

    def counted(self, name, *args, **given):
        names.append(name)
        record(self, name, *args, **given)

    monkeypatch.setattr(Tape, "record", counted)
    first, second = (pack(VARIANTS[0], [float_rows("float32", 8, 32, seed)], 32) for seed in range(2))
    tape = Tape()
    x = loaded(tape, "x", 32)
    packed_linear(x, first)
    packed_linear(x, second)
    assert names.count("pack") == 1
    packed_linear(x + x, first)
    assert names.count("pack") == 2


@needs_core
@every_variant
def test_a_program_runs_again_with_any_number_of_rows(variant: str) -> None:
    weights = float_rows("float32", 24, 24)
    packed = pack(variant, [weights], 24)
    tape = Tape()
    x = loaded(tape, "x", 24)
    stored(tape, "y", packed_linear(activate(x, "silu"), packed) + x)
    program, core = tape.finish(), machine(variant, 2)
    for rows in (3, 70, 1, 17, 70, 16):
        given = torch.randn(rows, 24, generator=torch.Generator().manual_seed(rows))
        output = torch.empty(rows, 24)
        program.run(core, rows, {"x": given, "y": output})
        wanted = torch.nn.functional.silu(given) @ weights.data.t() + given
        torch.testing.assert_close(output, wanted, atol=1e-4, rtol=1e-4)


@needs_core
@every_variant
def test_rows_of_inputs_may_lie_apart(variant: str) -> None:
    wide, target = torch.randn(5, 30), torch.zeros(5, 20)
    tape = Tape()
    x = loaded(tape, "x", 10)
    stored(tape, "y", x + x)
    tape.finish().run(machine(variant), 5, {"x": wide[:, 7:17], "y": target[:, 3:13]})
    assert torch.equal(target[:, 3:13], 2 * wide[:, 7:17])
    assert target[:, :3].abs().sum() + target[:, 13:].abs().sum() == 0


@needs_core
@every_variant
@given(
    steps=st.lists(st.tuples(st.sampled_from(["add", "norm", "silu", "linear"]), st.integers(0, 99)), max_size=12),
    rows=st.integers(1, 20),
    threads=st.integers(1, 3),
)
def test_any_program(variant: str, steps: list[tuple[str, int]], rows: int, threads: int) -> None:
    """Values that are used late, early and several times, so that registers are shared in many ways."""
    weights = float_rows("float32", 20, 20)
    packed, ones = pack(variant, [weights], 20), torch.ones(20)
    x = torch.randn(rows, 20, generator=torch.Generator().manual_seed(rows))

    def compute(x, linear):
        values = [x]
        for name, place in steps:
            chosen, last = values[place % len(values)], values[-1]
            if name == "add":
                values.append(rms_norm(chosen + last, ones, 1e-5))
            elif name == "norm":
                values.append(rms_norm(chosen, ones, 1e-5))
            elif name == "silu":
                values.append(activate(chosen, "silu"))
            else:
                values.append(rms_norm(linear(chosen), ones, 1e-5))
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total + total

    found = run_recorded(variant, lambda x: compute(x, lambda value: packed_linear(value, packed)), x, threads=threads)
    wanted = compute(x, lambda value: value @ weights.data.t())
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


@needs_core
def test_a_program_holds_on_to_what_it_reads() -> None:
    weight = torch.ones(8)
    alive = weakref.ref(weight)
    tape = Tape()
    stored(tape, "y", rms_norm(loaded(tape, "x", 8), weight, 1e-5))
    program = tape.finish()
    del weight, tape
    gc.collect()
    assert alive() is not None
    del program
    gc.collect()
    assert alive() is None
