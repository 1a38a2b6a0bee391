"""Matrices in the core's layouts hold what the checkpoint's tensors held, on every instruction set."""

import pytest
import torch
from torch import Tensor

from quire.ops.cpu.matrix import StoredRows, fill, open_matrix, packed_form, runs_alike
from quire.ops.reference.gguf.dequantize import TYPES
from tests.ops.cpu.blocks import columns_of, float_rows, random_rows, values_of
from tests.ops.cpu.machines import VARIANTS, every_thread_count, every_variant, machine, needs_core, pack

pytestmark = needs_core

EXACT = ("Q4_0", "Q4_1", "Q8_0", "MXFP4")
FLOATS = ("float32", "float16", "bfloat16")


def packed_values(variant: str, parts: list[StoredRows], columns: int, threads: int = 1) -> Tensor:
    """Every row of a single matrix, as an embedding would look it up."""
    packed = pack(variant, parts, columns, threads=threads)
    return packed.lookup(torch.arange(sum(part.rows for part in parts)))


def grouped(values: Tensor) -> Tensor:
    return values.view(len(values), -1, 32)


@every_variant
@pytest.mark.parametrize("kind", EXACT)
def test_4_and_8_bits_are_kept_exactly(variant: str, kind: str) -> None:
    stored = random_rows(kind, 37, 5)
    assert torch.equal(packed_values(variant, [stored], columns_of(kind, 5)), values_of(stored))


@every_variant
def test_the_lowest_byte_becomes_its_neighbour(variant: str) -> None:
    """Dot products of bytes count on there being no -128, which quantizers do not write."""
    stored = random_rows("Q8_0", 1, 1)
    stored.data[0, 2:6] = torch.tensor([128, 129, 127, 0], dtype=torch.uint8)
    wanted = values_of(stored)[0, :4].clone()
    wanted[0] = wanted[1]
    assert torch.equal(packed_values(variant, [stored], 32)[0, :4], wanted)


@every_variant
def test_q4_k_is_kept_but_for_rounding_scales_to_float16(variant: str) -> None:
    stored = random_rows("Q4_K", 67, 3)
    wanted = grouped(values_of(stored))
    found = grouped(packed_values(variant, [stored], columns_of("Q4_K", 3)))
    allowed = wanted.abs().amax(dim=2, keepdim=True) * 2**-10
    assert ((found - wanted).abs() <= allowed).all()


@every_variant
def test_mxfp4_has_any_power_of_two(variant: str) -> None:
    """But for the smallest, which becomes 0; where the file says there is no number, none is."""
    exponents = torch.arange(256, dtype=torch.uint8).view(-1, 1)
    stored = StoredRows("MXFP4", torch.cat((exponents, torch.full((256, 16), 0x7F, dtype=torch.uint8)), dim=1), 256)
    found, wanted = packed_values(variant, [stored], 32), values_of(stored)
    assert torch.equal(found[1:252], wanted[1:252])  # others are beyond float32 when doubled
    assert torch.equal(found[0], torch.zeros(32))
    assert not found[255].isfinite().any()


@every_variant
@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in (*EXACT, "Q4_K")])
def test_other_types_are_rounded_to_8_bits(variant: str, kind: str) -> None:
    blocks = -(-512 // columns_of(kind, 1))
    stored = random_rows(kind, 19, blocks)
    wanted = grouped(values_of(stored))
    found = grouped(packed_values(variant, [stored], columns_of(kind, blocks)))
    largest = wanted.abs().amax(dim=2, keepdim=True)
    half_a_step = largest / 127 / 2
    rounded_scale = largest * 2**-11  # float16's, which moves the largest value most
    assert ((found - wanted).abs() <= half_a_step + rounded_scale).all()


@every_variant
@pytest.mark.parametrize("exponent", range(-24, 16, 3))
def test_weights_of_any_magnitude_in_8_bits(variant: str, exponent: int) -> None:
    stored = random_rows("Q8_K", 3, 1)
    raw = stored.data.clone()
    raw[:, :4] = torch.tensor([2.0**exponent / 127]).view(torch.uint8)
    scaled = StoredRows("Q8_K", raw, 3)
    wanted = grouped(values_of(scaled))
    largest = wanted.abs().amax(dim=2, keepdim=True)
    coarse = 127 * 2**-31  # where 64 times a scale is below float16's normal numbers
    error = (grouped(packed_values(variant, [scaled], 256)) - wanted).abs()
    assert (error <= largest * (1 / 254 + 2**-11) + coarse).all()


@every_variant
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (16, 32), (17, 33), (45, 70), (3, 100)])
def test_floats_are_kept_exactly(variant: str, kind: str, rows: int, columns: int) -> None:
    stored = float_rows(kind, rows, columns)
    assert torch.equal(packed_values(variant, [stored], columns), values_of(stored))


@every_variant
def test_floats_that_are_no_numbers_are_kept(variant: str) -> None:
    values = torch.tensor([[torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 6e-8, 65504.0]])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        stored = StoredRows(str(dtype).removeprefix("torch."), values.to(dtype), 1)
        found = packed_values(variant, [stored], values.shape[1])
        assert torch.equal(found.isnan(), values.isnan())
        assert torch.equal(found.nan_to_num(), values.to(dtype).float().nan_to_num())


@every_variant
@every_thread_count
@pytest.mark.parametrize(
    "kinds", [("Q4_1", "Q4_0", "Q4_1"), ("Q8_0", "Q8_0"), ("MXFP4",) * 3, ("Q6_K", "Q5_K"), FLOATS[:1] * 3]
)
def test_parts_of_one_layout_are_one_matrix(variant: str, threads: int, kinds: tuple[str, ...]) -> None:
    sizes = (5, 30, 16)  # parts begin in the middle of panels
    parts = [
        float_rows(kind, rows, 256, seed=rows)
        if kind in FLOATS
        else random_rows(kind, rows, 256 // columns_of(kind, 1), seed=rows)
        for kind, rows in zip(kinds, sizes, strict=False)
    ]
    assert len(runs_alike(parts)) == 1
    found = packed_values(variant, parts, 256, threads)
    alone = torch.cat([packed_values(variant, [part], 256) for part in parts])
    assert torch.equal(found, alone)


@every_variant
def test_more_rows_than_are_converted_at_once(variant: str) -> None:
    stored = random_rows("Q5_0", 2050, 1)
    found = packed_values(variant, [stored], 32, threads=2)
    wanted = values_of(stored)
    assert ((found - wanted).abs() <= wanted.abs().amax(dim=1, keepdim=True) / 250).all()


@every_variant
def test_rows_that_do_not_lie_side_by_side(variant: str) -> None:
    wide = float_rows("float32", 20, 64).data
    part = StoredRows("float32", wide[::2, :40], 10)
    turned = StoredRows("float32", wide.t(), 64)
    assert torch.equal(packed_values(variant, [part], 40), wide[::2, :40])
    assert torch.equal(packed_values(variant, [turned], 20), wide.t())


@every_variant
def test_packed_bytes_are_the_same_whoever_packs_them(variant: str) -> None:
    for kind in ("Q4_0", "Q8_0", "MXFP4", "Q6_K", "float16"):
        part = float_rows(kind, 50, 256) if kind in FLOATS else random_rows(kind, 50, 256 // columns_of(kind, 1))
        one, other = (torch.zeros(packed_form([part], 256).size, dtype=torch.uint8) for _ in range(2))
        fill(machine(variant, 3), [part], 256, one)
        fill(machine("portable"), [part], 256, other)
        assert torch.equal(one, other)


@every_variant
def test_the_bias_is_no_part_of_a_row(variant: str) -> None:
    stored = float_rows("float32", 4, 32)
    packed = pack(variant, [stored], 32, torch.full((4,), 100.0))
    assert torch.equal(packed.lookup(torch.tensor([[3], [0]])), stored.data[torch.tensor([[3], [0]])])


@every_thread_count
def test_many_rows_are_looked_up_by_all_threads(threads: int) -> None:
    stored = float_rows("float32", 9, 32)
    ids = torch.arange(101) % 9
    assert torch.equal(pack(VARIANTS[0], [stored], 32, threads=threads).lookup(ids), stored.data[ids])


@every_variant
def test_rows_that_are_not_there_are_refused(variant: str) -> None:
    packed = pack(variant, [float_rows("float32", 4, 32)], 32)
    for ids in ([4], [0, -1]):
        with pytest.raises(IndexError, match="of a matrix that has 4"):
            packed.lookup(torch.tensor(ids))
    assert packed.lookup(torch.tensor([], dtype=torch.long)).shape == (0, 32)


def test_what_is_not_alike_is_packed_apart() -> None:
    kinds = ["Q4_K", "Q4_1", "Q8_0", "Q6_K", "Q5_1", "Q4_0", "float32", "float32", "float16"]
    parts = [StoredRows(kind, torch.empty(0), 16) for kind in kinds]
    runs = [[part.kind for part in run] for run in runs_alike(parts)]
    # Q8_0 and Q6_K share a layout, but the scales of the latter are multiplied
    assert runs == [["Q4_K", "Q4_1"], ["Q8_0"], ["Q6_K", "Q5_1"], ["Q4_0"], ["float32", "float32"], ["float16"]]


def test_a_matrix_holds_on_to_its_memory() -> None:
    parts, data, bias = [float_rows("float32", 4, 32)], torch.zeros(4096, dtype=torch.uint8), torch.zeros(4)
    matrix = open_matrix("a", packed_form(parts, 32), data, bias)
    assert matrix.data is data
    assert matrix.bias is bias
