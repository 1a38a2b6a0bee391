"""Registers that are in use at the same time never share memory."""

from hypothesis import given
from hypothesis import strategies as st

from quire.ops.cpu.places import Register, arrange

uses = st.lists(st.integers(0, 12), max_size=4).map(sorted)
"""Steps in which a register is used."""


def registers_of(given: list[tuple[int, list[int]]]) -> list[Register]:
    registers = [Register(number, row_bytes) for number, (row_bytes, _) in enumerate(given)]
    for register, (_, steps) in zip(registers, given, strict=True):
        for step in steps:
            register.used_at(step)
    return registers


@given(st.lists(st.tuples(st.integers(1, 500), uses), max_size=14))
def test_no_two_that_meet_overlap(given: list[tuple[int, list[int]]]) -> None:
    registers = registers_of(given)
    size = arrange(registers)
    for register, (row_bytes, steps) in zip(registers, given, strict=True):
        assert register.row_bytes >= row_bytes
        assert register.offset >= 0
        assert register.offset % 64 == register.row_bytes % 64 == 0
        assert register.offset + register.row_bytes <= size
        for other, (_, other_steps) in zip(registers, given, strict=True):
            if register is other or not steps or not other_steps:
                continue
            if steps[0] <= other_steps[-1] and other_steps[0] <= steps[-1]:
                apart = register.offset + register.row_bytes <= other.offset
                assert apart or other.offset + other.row_bytes <= register.offset


def test_places_are_used_again() -> None:
    registers = registers_of([(64, [0, 1]), (128, [1, 2]), (64, [2, 3]), (64, [3, 4])])
    assert arrange(registers) == 192
    assert [register.offset for register in registers] == [0, 64, 0, 64]


def test_a_gap_is_filled_when_it_is_wide_enough() -> None:
    registers = registers_of([(64, [0, 1]), (64, [0, 9]), (128, [5, 6]), (64, [5, 6])])
    assert arrange(registers) == 256
    assert [register.offset for register in registers] == [0, 64, 128, 0]


def test_no_registers_take_no_room() -> None:
    assert arrange([]) == 0
