"""What the tuner tries and writes; no device is needed for either."""

import ast
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.kernels.few_rows_candidates import MOST_CANDIDATES, candidates, ways
from quire.bench.kernels.few_rows_source import table_source
from quire.ops.triton.few_rows_choices import Choice, choose
from quire.ops.triton.few_rows_table import TABLE

SIZES = st.sampled_from([1024, 2048, 4096, 14336, 28672])


@given(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]), SIZES, SIZES)
def test_candidates_are_few_and_different(rows: int, out_size: int, in_size: int) -> None:
    found = candidates(rows, out_size, in_size)
    assert 0 < len(found) <= MOST_CANDIDATES
    assert len(set(found)) == len(found)
    assert all(choice.cores == "tensor" for choice in found) or rows <= 8


@pytest.mark.parametrize("rows", [1, 8])
def test_what_ships_comes_first_and_once(rows: int) -> None:
    shipped = choose(rows, 4096, 4096)
    found = ways(rows, 4096, 4096, tune=True)
    assert found[0] == shipped
    assert found.count(found[0]) == 1
    assert ways(rows, 4096, 4096, tune=False) == [shipped]


def test_the_table_keeps_other_shapes_and_takes_what_was_tuned() -> None:
    best = Choice("cuda", 2, 512, 1, 2, 1)
    source = table_source([(1, 4096, 4096, best), (2, 4096, 4096, None), (4, 96, 64, best)], "a card")
    assert "Measured on: a card." in source
    (table,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and node.value is not None
    ]
    assert table[4096, 4096][1] == astuple(best)
    assert table[4096, 4096][2] is None
    assert table[96, 64] == {4: astuple(best)}
    assert {shape: table[shape] for shape in TABLE if shape != (4096, 4096)} == {
        shape: entries for shape, entries in TABLE.items() if shape != (4096, 4096)
    }
