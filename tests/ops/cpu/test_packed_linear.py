"""Matmuls with packed matrices against float64 on the dequantized weights, on every instruction set."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.ops.cpu.matrix import StoredRows
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.functional import packed_linear
from tests.ops.cpu.blocks import columns_of, float_rows, random_rows, values_of
from tests.ops.cpu.machines import (
    VARIANTS,
    every_thread_count,
    every_variant,
    needs_core,
    pack,
    rounds_to_brains,
    run_recorded,
)
from tests.rarely import rarely

pytestmark = needs_core

ROW_COUNTS = (1, 2, 3, 4, 5, 7, 11, 12, 13, 16, 17, 23, 24, 25, 31, 32, 33, 40, 48, 49, 63, 64)
FLOATS = ("float32", "float16", "bfloat16")
BYTES, BRAINS = 0.01, 0.004
"""Relative errors that activations in int8 and in bfloat16 may bring."""


def weights_of(kind: str, rows: int, columns: int, seed: int = 0) -> StoredRows:
    if kind in FLOATS:
        return float_rows(kind, rows, columns, seed)
    return random_rows(kind, rows, columns // columns_of(kind, 1), seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def packed_values(packed: PackedLinear, stored: StoredRows) -> Tensor:
    """What the matrix holds, which layouts of another type than the checkpoint's have rounded."""
    return packed.lookup(torch.arange(stored.rows))


def relative_error(found: Tensor, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> float:
    """Against what dot products of such numbers usually come to, so that one that is about 0 by chance says nothing."""
    wanted = x.double() @ weights.double().t()
    if bias is not None:
        wanted += bias.double()
    usual = x.double().norm() * weights.double().norm() / x.shape[-1] ** 0.5
    return float((found.double() - wanted).norm() / usual)


def allowed_error(variant: str, *kinds: str) -> float:
    """Of a sum of matmuls with matrices of these kinds."""
    if any(kind not in FLOATS for kind in kinds):
        return BYTES
    return BRAINS if rounds_to_brains(variant) and set(kinds) != {"float32"} else 1e-5


@every_variant
@every_thread_count
@pytest.mark.parametrize("kind", [*FLOATS, "Q4_0", "Q4_1", "Q4_K", "Q8_0", "MXFP4"])
def test_matmuls_of_any_number_of_rows(variant: str, threads: int, kind: str) -> None:
    stored = weights_of(kind, 75, 256)
    packed, weights = pack(variant, [stored], 256, threads=threads), values_of(stored)
    for rows in ROW_COUNTS:
        x = normal(rows, 256, seed=rows)
        assert relative_error(packed.multiply(x), x, weights) < allowed_error(variant, kind), rows


@every_variant
@pytest.mark.parametrize("kind", ["Q6_K", "Q2_K", "IQ4_NL", "TQ2_0"])
def test_types_that_were_converted(variant: str, kind: str) -> None:
    stored = weights_of(kind, 40, 512)
    packed, weights = pack(variant, [stored], 512), values_of(stored)
    for rows in (1, 6, 40):
        x = normal(rows, 512, seed=rows)
        assert relative_error(packed.multiply(x), x, weights) < BYTES


@every_variant
@given(
    rows=st.integers(1, 50),
    columns=st.integers(1, 130),
    outputs=st.integers(1, 70),
    threads=st.integers(1, 3),
    kind=st.sampled_from(FLOATS),
    has_bias=st.booleans(),
)
def test_floats_of_any_shape(
    variant: str, rows: int, columns: int, outputs: int, threads: int, kind: str, has_bias: bool
) -> None:
    # all positive, so that sums are off by no more than their products
    stored, x = weights_of(kind, outputs, columns), normal(rows, columns, seed=1).abs()
    stored = StoredRows(kind, stored.data.abs(), outputs)
    bias = normal(outputs, seed=2).abs() if has_bias else None
    found = pack(variant, [stored], columns, bias, threads).multiply(x)
    wanted = x.double() @ values_of(stored).double().t() + (0 if bias is None else bias.double())
    allowed = 2 * allowed_error(variant, kind)  # in bfloat16 both factors may be off by 1 in 256
    torch.testing.assert_close(found.double(), wanted, atol=0, rtol=allowed)


def whole_numbers(rows: int, columns: int) -> Tensor:
    """Activations that int8 groups hold as they are: every group's largest magnitude is 127."""
    x = torch.randint(-127, 128, (rows, columns), generator=torch.Generator().manual_seed(rows)).float()
    x.view(rows, -1, 32)[:, :, 5] = 127
    return x


def blocks_with_power_of_two_scales(kind: str, rows: int, blocks: int) -> StoredRows:
    """Values with so few bits that bfloat16 holds them too."""
    stored = random_rows(kind, rows, blocks)
    raw = stored.data.view(rows * blocks, -1).clone()
    if kind == "MXFP4":
        raw[:, 0] = 127 - 5
        return StoredRows(kind, raw.view(rows, -1), rows)
    raw[:, :2] = torch.tensor([2.0**-6], dtype=torch.float16).view(torch.uint8)
    if kind == "Q4_1":
        raw[:, 2:4] = torch.tensor([-(2.0**-4)], dtype=torch.float16).view(torch.uint8)
    return StoredRows(kind, raw.view(rows, -1), rows)


def weights_of_few_bits(kind: str, rows: int, columns: int) -> StoredRows:
    if kind not in FLOATS:
        return blocks_with_power_of_two_scales(kind, rows, columns // 32)
    whole = torch.randint(-127, 128, (rows, columns), generator=torch.Generator().manual_seed(rows))
    return StoredRows(kind, whole.to(getattr(torch, kind)), rows)


@every_variant
@given(
    rows=st.integers(1, 70),
    groups=st.integers(1, 9),
    outputs=st.integers(1, 100),
    threads=st.integers(1, 3),
    kind=st.sampled_from([*FLOATS, "Q4_0", "Q4_1", "Q8_0", "MXFP4"]),
)
def test_what_can_be_exact_is(variant: str, rows: int, groups: int, outputs: int, threads: int, kind: str) -> None:
    stored, x = weights_of_few_bits(kind, outputs, 32 * groups), whole_numbers(rows, 32 * groups)
    found = pack(variant, [stored], 32 * groups, threads=threads).multiply(x)
    assert torch.equal(found, (x.double() @ values_of(stored).double().t()).float())


@every_variant
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K", "Q8_0", "MXFP4", "Q6_K"])
def test_whole_numbers_with_any_scales(variant: str, kind: str) -> None:
    stored = weights_of(kind, 33, 256)
    packed = pack(variant, [stored], 256)
    weights = packed.lookup(torch.arange(33))  # rounded already where the layout rounds
    for rows in (1, 5, 16):
        x = whole_numbers(rows, 256)
        assert relative_error(packed.multiply(x), x, weights) < 1e-5


@every_variant
@pytest.mark.parametrize("kind", [*FLOATS, "Q4_1", "Q8_0", "MXFP4"])
def test_zeros_give_zeros(variant: str, kind: str) -> None:
    packed = pack(variant, [weights_of(kind, 20, 64)], 64)
    for rows in (1, 5, 33):
        assert torch.equal(packed.multiply(torch.zeros(rows, 64)), torch.zeros(rows, 20))


@every_variant
@pytest.mark.parametrize("kind", [*FLOATS, "Q4_1", "Q8_0", "MXFP4", "Q6_K"])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_stays_in_its_row(variant: str, kind: str, poison: float) -> None:
    stored = weights_of(kind, 21, 256)
    packed, weights = pack(variant, [stored], 256), values_of(stored)
    for rows, poisoned in ((1, 0), (3, 1), (14, 12), (40, 39)):
        x = normal(rows, 256, seed=rows)
        clean = packed.multiply(x)
        x[poisoned, 70] = poison
        found = packed.multiply(x)
        reaches = weights[:, 70] != 0  # what is multiplied by 0 may be left out
        assert not found[poisoned][reaches].isfinite().any()
        others = torch.arange(rows) != poisoned
        assert torch.equal(found[others], clean[others])


@every_variant
@pytest.mark.parametrize("kind", [*FLOATS, "Q4_1", "Q8_0", "MXFP4"])
@pytest.mark.parametrize("magnitude", [1e-20, 1e-6, 1e6, 1e20])
def test_activations_of_any_magnitude(variant: str, kind: str, magnitude: float) -> None:
    stored = weights_of(kind, 21, 64)
    packed, weights = pack(variant, [stored], 64), values_of(stored)
    for rows in (1, 6, 30):
        x = normal(rows, 64, seed=rows) * magnitude
        assert relative_error(packed.multiply(x), x, weights) < allowed_error(variant, kind)


@every_variant
def test_an_activation_of_nothing_but_tiny_numbers(variant: str) -> None:
    packed = pack(variant, [weights_of("Q8_0", 16, 64)], 64)
    assert packed.multiply(torch.full((3, 64), 1e-42)).abs().max() < 1e-30


@every_variant
@every_thread_count
@pytest.mark.parametrize(
    "kinds",
    [
        ("Q4_K", "Q4_K", "Q6_K"),
        ("Q8_0", "Q6_K", "Q4_0"),
        ("float32", "float16", "bfloat16"),
        ("float16", "float32", "float16"),
        ("Q4_1", "float32", "Q8_0"),
        ("MXFP4", "MXFP4", "Q8_0"),
        ("bfloat16", "Q4_K", "float32"),
    ],
)
def test_parts_of_different_kinds(variant: str, threads: int, kinds: tuple[str, ...]) -> None:
    parts = [weights_of(kind, rows, 256, seed=rows) for kind, rows in zip(kinds, (41, 7, 18), strict=True)]
    bias = torch.full((66,), torch.nan)
    packed = pack(variant, parts, 256, bias, threads)
    bias.copy_(normal(66, seed=9) * 100)  # a checkpoint may bring it after the weights
    for rows in (1, 5, 16, 24, 40):
        x = normal(rows, 256, seed=rows)
        found, first = packed.multiply(x), 0
        for part in parts:
            own = slice(first, first + part.rows)
            allowed = allowed_error(variant, part.kind)
            assert relative_error(found[:, own], x, values_of(part), bias[own]) < allowed, (rows, part.kind)
            first += part.rows


@every_variant
@pytest.mark.parametrize("kind", [*FLOATS, "Q4_1", "Q8_0", "MXFP4"])
def test_what_an_earlier_run_left_behind_does_not_matter(variant: str, kind: str) -> None:
    packed, x = pack(variant, [weights_of(kind, 37, 64)], 64), normal(33, 64)
    fresh = packed.multiply(x)
    packed.multiply(torch.full((64, 64), torch.nan))
    assert torch.equal(packed.multiply(x), fresh)


@every_variant
def test_rows_give_the_same_alone_and_together(variant: str) -> None:
    for kind in ("float32", "Q4_1", "Q8_0", "MXFP4"):
        packed = pack(variant, [weights_of(kind, 40, 128)], 128)
        x = normal(23, 128)
        assert torch.equal(packed.multiply(x), torch.cat([packed.multiply(row[None]) for row in x]))


@every_variant
@every_thread_count
@pytest.mark.parametrize("kind", [*FLOATS, "Q4_1", "Q4_K", "Q8_0", "MXFP4", "Q6_K"])
@pytest.mark.parametrize("prompts", rarely([range(40), range(1), range(17, 33), range(7, 40), range(39, 40)], every=2))
def test_rows_of_prompts_among_others(variant: str, threads: int, kind: str, prompts: range) -> None:
    stored, x = weights_of(kind, 37, 256), normal(40, 256)
    packed = pack(variant, [stored], 256, threads=threads)

    def multiplied(x: Tensor, prompts: range) -> Tensor:
        return run_recorded(variant, lambda x: packed_linear(x, packed), x, threads=threads, prompts=prompts)

    found, others = multiplied(x, prompts), [row for row in range(40) if row not in prompts]
    assert torch.equal(found[others], packed.multiply(x)[others])
    alone = torch.cat([multiplied(x[row : row + 1], range(1)) for row in prompts])
    assert torch.equal(found[prompts.start : prompts.stop], alone)
    brains = rounds_to_brains(variant) and kind != "float32"
    assert relative_error(alone, x[prompts.start : prompts.stop], packed_values(packed, stored)) < (
        BRAINS if brains else allowed_error(variant, kind)
    )


@every_variant
def test_prompts_beyond_the_rows_are_refused(variant: str) -> None:
    for prompts in (range(3, 5), range(-1, 2), range(3, 2)):
        with pytest.raises(IndexError, match="of prompts among 4"):
            run_recorded(variant, lambda x: x + x, torch.zeros(4, 8), prompts=prompts)


@every_variant
def test_leading_dimensions_and_strides(variant: str) -> None:
    stored = weights_of("float32", 5, 48)
    packed = pack(variant, [stored], 48)
    x = normal(4, 3, 96)[:, :, ::2]
    found = packed_linear(x, packed)
    assert found.shape == (4, 3, 5)
    torch.testing.assert_close(found, x @ stored.data.t())
    assert packed.multiply(torch.empty(0, 48)).shape == (0, 5)


@every_variant
@every_thread_count
def test_recorded_between_other_operations(variant: str, threads: int) -> None:
    stored = weights_of("float32", 48, 48)
    packed = pack(variant, [stored], 48)
    x = normal(19, 48)
    found = run_recorded(variant, lambda x: x + packed_linear(packed_linear(x, packed) + x, packed), x, threads=threads)
    weights = stored.data.double().t()
    wanted = x + (x.double() @ weights + x) @ weights
    torch.testing.assert_close(found, wanted.float(), atol=1e-3, rtol=1e-5)


@every_variant
@pytest.mark.parametrize(
    "kinds",
    [
        *(("float32", "float16"), ("float16", "float32"), ("bfloat16", "Q4_1"), ("Q4_1", "float32")),
        *(("Q8_0", "Q4_0"), ("MXFP4", "Q4_0")),
    ],
)
def test_two_layers_that_read_the_same_value(variant: str, kinds: tuple[str, str]) -> None:
    """Each gets it in the format that its own layout takes."""
    parts = [weights_of(kind, 32, 64, seed=number) for number, kind in enumerate(kinds)]
    first, second = (pack(variant, [part], 64) for part in parts)
    for rows in (3, 30):
        x = normal(rows, 64)
        found = run_recorded(variant, lambda x: packed_linear(x, first) + packed_linear(x, second), x)
        weights = values_of(parts[0]) + values_of(parts[1])
        assert relative_error(found, x, weights) < allowed_error(variant, *kinds), rows


def test_the_variants_agree() -> None:
    stored = weights_of("Q4_K", 100, 512)
    x = whole_numbers(9, 512)
    results = [pack(variant, [stored], 512).multiply(x) for variant in VARIANTS]
    for result in results:
        assert (result - results[-1]).norm() / results[-1].norm() < 1e-5
