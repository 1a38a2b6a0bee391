"""Every op that works on rows, recorded as a program of its own, against the reference of the same name."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.ops.cpu.record import ACTIVATIONS
from quire.ops.cpu.tape import NotRecordable, Tape, TapeInput, Value
from quire.ops.functional import (
    activate,
    add_layer_norm,
    gated_activation,
    layer_norm,
    packed_attention,
    paged_attention,
    prepare_heads,
    rms_norm,
    rotary,
    write_kv,
)
from quire.ops.head_norms import HeadNorms
from quire.ops.reference.gated_activation import CLAMPED_SWIGLU
from tests.ops.cpu.machines import every_thread_count, every_variant, needs_core, run_recorded

pytestmark = needs_core

ALONE = [activation for activation in ACTIVATIONS if activation != CLAMPED_SWIGLU]
"""Activations without anything that they gate."""
CACHES = (torch.float32, torch.float16, torch.bfloat16)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@every_variant
@given(rows=st.integers(1, 20), size=st.integers(1, 100), offset=st.sampled_from([0.0, 1.0]), threads=st.integers(1, 3))
def test_rms_norm(variant: str, rows: int, size: int, offset: float, threads: int) -> None:
    x, weight = normal(rows, size), normal(size, seed=1)
    found = run_recorded(variant, lambda x: rms_norm(x, weight, 1e-5, offset), x, threads=threads)
    torch.testing.assert_close(found, rms_norm(x, weight, 1e-5, offset), atol=1e-6, rtol=1e-5)


@every_variant
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize(("heads", "size"), [(1, 8), (3, 64), (5, 10), (2, 128)])
def test_rms_norm_of_heads(variant: str, heads: int, size: int, offset: float) -> None:
    x, weight = normal(6, heads, size), normal(size, seed=1)
    found = run_recorded(variant, lambda x: rms_norm(x, weight, 1e-6, offset), x, threads=2)
    torch.testing.assert_close(found, rms_norm(x, weight, 1e-6, offset), atol=1e-6, rtol=1e-5)


@every_variant
@pytest.mark.parametrize("magnitude", [0.0, 1e-10, 1e-3, 1e3, 1e15])
def test_rms_norm_of_any_magnitude(variant: str, magnitude: float) -> None:
    x, weight = normal(3, 77) * magnitude, normal(77, seed=1)
    found = run_recorded(variant, lambda x: rms_norm(x, weight, 1e-6, 0.0), x)
    torch.testing.assert_close(found, rms_norm(x, weight, 1e-6, 0.0), atol=1e-6, rtol=1e-5)


@every_variant
@given(rows=st.integers(1, 20), size=st.integers(1, 100), has_bias=st.booleans(), threads=st.integers(1, 3))
def test_layer_norm(variant: str, rows: int, size: int, has_bias: bool, threads: int) -> None:
    x, weight, bias = normal(rows, size), normal(size, seed=1), normal(size, seed=2) if has_bias else None
    found = run_recorded(variant, lambda x: layer_norm(x, weight, bias, 1e-3), x, threads=threads)
    exact_bias = None if bias is None else bias.double()
    wanted = layer_norm(x.double(), weight.double(), exact_bias, 1e-3).float()
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@every_variant
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(("heads", "size"), [(1, 8), (3, 64), (5, 10)])
def test_layer_norm_of_heads(variant: str, heads: int, size: int, has_bias: bool) -> None:
    x, weight, bias = normal(6, heads, size), normal(size, seed=1), normal(size, seed=2) if has_bias else None
    found = run_recorded(variant, lambda x: layer_norm(x, weight, bias, 1e-5), x, threads=2)
    torch.testing.assert_close(found, layer_norm(x, weight, bias, 1e-5), atol=1e-5, rtol=1e-5)


@every_variant
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("size", [64, 37])
def test_add_layer_norm(variant: str, size: int, has_bias: bool) -> None:
    x, added, weight = normal(5, size), normal(5, size, seed=1), normal(size, seed=2)
    bias = normal(size, seed=3) if has_bias else None
    total = run_recorded(variant, lambda x, added: add_layer_norm(x, added, weight, bias, 1e-5)[0], x, added)
    normed = run_recorded(variant, lambda x, added: add_layer_norm(x, added, weight, bias, 1e-5)[1], x, added)
    wanted_total, wanted = add_layer_norm(x, added, weight, bias, 1e-5)
    assert torch.equal(total, wanted_total)
    torch.testing.assert_close(normed, wanted, atol=1e-5, rtol=1e-5)


@every_variant
def test_layer_norm_far_from_zero(variant: str) -> None:
    x, weight, bias = normal(4, 70) + 1000, normal(70, seed=1), normal(70, seed=2)
    found = run_recorded(variant, lambda x: layer_norm(x, weight, bias, 1e-5), x)
    wanted = layer_norm(x.double(), weight.double(), bias.double(), 1e-5).float()
    torch.testing.assert_close(found, wanted, atol=5e-4, rtol=1e-4)  # float32 has 1000 to 6e-5


@every_variant
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [1, 3, 16, 37])
def test_activations(variant: str, activation: str, size: int) -> None:
    if activation in ALONE:
        x = normal(9, size) * 4
        found = run_recorded(variant, lambda x: activate(x, activation), x, threads=2)
        torch.testing.assert_close(found, activate(x, activation), atol=2e-6, rtol=2e-6)
    both = normal(9, 2 * size, seed=1) * 4
    gated = run_recorded(variant, lambda x: gated_activation(x, activation), both, threads=2)
    torch.testing.assert_close(gated, gated_activation(both, activation), atol=1e-5, rtol=1e-5)


@every_variant
@pytest.mark.parametrize("activation", ALONE)
def test_activations_of_any_magnitude(variant: str, activation: str) -> None:
    magnitudes = torch.logspace(-30, 30, 121)
    x = torch.cat((magnitudes, -magnitudes, torch.linspace(-110, 110, 2001), torch.zeros(1))).view(1, -1)
    found = run_recorded(variant, lambda x: activate(x, activation), x)
    torch.testing.assert_close(found, activate(x, activation), atol=2e-6, rtol=2e-6)


@every_variant
@pytest.mark.parametrize("activation", ALONE)
def test_activations_of_what_is_no_number(variant: str, activation: str) -> None:
    x = torch.ones(2, 40)
    x[0, 3], x[0, 39] = torch.nan, torch.inf
    found = run_recorded(variant, lambda x: activate(x, activation), x)
    assert found[0, 3].isnan()
    assert found[0, 39] == torch.inf
    assert found.isfinite().sum() == 78


@every_variant
def test_clamped_swiglu_of_any_magnitude_and_of_what_is_no_number(variant: str) -> None:
    sides = torch.cat((torch.logspace(-30, 30, 61), torch.linspace(0, 110, 301), torch.tensor([torch.inf, torch.nan])))
    sides = torch.cat((sides, -sides[sides.isfinite()]))
    both = torch.cartesian_prod(sides, sides).t().reshape(1, -1).contiguous()
    found = run_recorded(variant, lambda x: gated_activation(x, CLAMPED_SWIGLU), both)
    wanted = gated_activation(both.double(), CLAMPED_SWIGLU).float()
    torch.testing.assert_close(found, wanted, atol=2e-6, rtol=2e-6, equal_nan=True)


def test_clamped_swiglu_of_one_side_is_not_recorded() -> None:
    with pytest.raises(NotRecordable, match="the activation clamped_swiglu"):
        activate(Tape().value(8), CLAMPED_SWIGLU)  # type: ignore[arg-type]


@every_variant
def test_queries_times_the_temperature_of_their_positions(variant: str) -> None:
    heads, temperatures = normal(7, 3, 10), normal(7, 1, seed=1)

    def scaled(heads: Value, temperatures: Value) -> Value:
        return (heads * temperatures.view(-1, 1, 1)).to(heads.dtype)

    found = run_recorded(variant, scaled, heads, temperatures, threads=2)
    assert torch.equal(found, heads * temperatures.unsqueeze(2))


def test_values_have_no_other_type() -> None:
    with pytest.raises(NotRecordable, match=r"torch\.float16 of"):
        Tape().value(8).to(torch.float16)


@every_variant
@given(
    rows=st.integers(1, 12),
    heads=st.integers(1, 6),
    half=st.integers(1, 40),
    rest=st.integers(0, 20),
    threads=st.integers(1, 3),
)
def test_rotary(variant: str, rows: int, heads: int, half: int, rest: int, threads: int) -> None:
    x = normal(rows, heads, 2 * half + rest)
    angles = normal(rows, half, seed=1) * 10
    cos, sin = angles.cos(), angles.sin()
    found = run_recorded(
        variant,
        lambda x: rotary(x, TapeInput("cos", half), TapeInput("sin", half)),
        x,
        threads=threads,
        given={"cos": cos, "sin": sin},
    )
    torch.testing.assert_close(found, rotary(x, cos, sin), atol=1e-6, rtol=1e-6)


@every_variant
@every_thread_count
def test_rotary_of_some_heads_leaves_the_others(variant: str, threads: int) -> None:
    x, angles = normal(7, 5, 16), normal(7, 8, seed=1)

    def turn_the_middle(x):
        _, middle, _ = x.split((1, 3, 1), dim=1)
        rotary(middle, TapeInput("cos", 8), TapeInput("sin", 8))
        return x

    given = {"cos": angles.cos(), "sin": angles.sin()}
    found = run_recorded(variant, turn_the_middle, x, threads=threads, given=given)
    assert torch.equal(found[:, 0], x[:, 0])
    assert torch.equal(found[:, 4], x[:, 4])
    torch.testing.assert_close(found[:, 1:4], rotary(x[:, 1:4], angles.cos(), angles.sin()))


@every_variant
@every_thread_count
@pytest.mark.parametrize("dtype", CACHES)
@pytest.mark.parametrize(("kv_heads", "head_dim"), [(1, 8), (2, 10), (3, 64)])
def test_write_kv(variant: str, threads: int, dtype: torch.dtype, kv_heads: int, head_dim: int) -> None:
    key, value = normal(11, kv_heads, head_dim) * 100, normal(11, kv_heads, head_dim, seed=1) / 1000
    key[0, 0, :4] = torch.tensor([0.0, 65519.0, 1e-7, torch.inf])
    slots = torch.randperm(24, generator=torch.Generator().manual_seed(0))[:11]
    found, wanted = (tuple(torch.full((6, 4, kv_heads, head_dim), 7.0, dtype=dtype) for _ in range(2)) for _ in "12")

    def write(key, value):
        write_kv(key, value, *found, TapeInput("slots"))
        return key

    run_recorded(variant, write, key, value, threads=threads, given={"slots": slots})
    write_kv(key, value, *wanted, slots)
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])


@every_variant
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("weights", ["of a head", "of each head", "of all"])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(8, 2, 64), (3, 1, 10)])
def test_prepare_heads(
    variant: str, turned: bool, kind: str, weights: str, heads: int, kv_heads: int, head_dim: int
) -> None:
    shapes = {"of a head": ((head_dim,), (head_dim,)), "of each head": ((heads, head_dim), (kv_heads, head_dim)),
              "of all": ((heads * head_dim,), (kv_heads * head_dim,))}[weights]  # fmt: skip
    query_weight, key_weight = (normal(*shape, seed=number + 1) for number, shape in enumerate(shapes))
    span = "all" if weights == "of all" else "head"
    norms = HeadNorms(query_weight, key_weight, 1e-5, 0.25, kind=kind, span=span)
    x, slots = normal(7, heads + 2 * kv_heads, head_dim) + 0.5, torch.tensor([3, 11, 0, 5, 7, 8, 1])
    half = head_dim // 2
    angles = normal(7, half, seed=3).cos(), normal(7, half, seed=3).sin()
    recorded = (TapeInput("cos", half), TapeInput("sin", half)) if turned else None
    found, wanted = (tuple(torch.zeros(3, 4, kv_heads, head_dim) for _ in range(2)) for _ in "12")
    query = run_recorded(
        variant,
        lambda x: prepare_heads(x, kv_heads, norms, recorded, *found, TapeInput("slots")),
        x,
        threads=2,
        given={"slots": slots, **({"cos": angles[0], "sin": angles[1]} if turned else {})},
    )
    expected = prepare_heads(x, kv_heads, norms, angles if turned else None, *wanted, slots)
    torch.testing.assert_close(query, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@every_variant
def test_sums(variant: str) -> None:
    a, b = normal(5, 3, 7), normal(5, 3, 7, seed=1)
    assert torch.equal(run_recorded(variant, lambda a, b: a + b, a, b), a + b)
    assert torch.equal(run_recorded(variant, lambda a: a + a, a), a + a)


@every_variant
@every_thread_count
@pytest.mark.parametrize("factor", [0.22, -3, 1e-20])
def test_products_with_numbers(variant: str, threads: int, factor: float) -> None:
    x, added = normal(5, 3, 7), normal(5, 3, 7, seed=1)
    assert torch.equal(run_recorded(variant, lambda x: x * factor, x, threads=threads), x * factor)
    found = run_recorded(variant, lambda x, added: x + factor * added, x, added, threads=threads)
    assert torch.equal(found, x + factor * added)  # rounded in between, alone and in any batch


def test_what_the_core_cannot_do_is_said() -> None:
    tape = Tape()
    x, heads = tape.value(8), tape.value(2, 4)
    slots = TapeInput("slots")
    with pytest.raises(NotRecordable, match="bfloat16"):
        rms_norm(x, torch.ones(8, dtype=torch.bfloat16), 1e-5)
    with pytest.raises(NotRecordable, match="weight"):
        layer_norm(x, torch.ones(16)[::2], torch.ones(8), 1e-5)
    with pytest.raises(NotRecordable, match=r"weights of \(4,\) on \(-1, 8\)"):
        layer_norm(x, torch.ones(4), None, 1e-5)
    with pytest.raises(NotRecordable, match=r"weights of \(8,\) on \(-1, 2, 4\)"):
        rms_norm(heads, torch.ones(8), 1e-5)
    with pytest.raises(NotRecordable, match="the activation quick_gelu"):
        activate(x, "quick_gelu")  # type: ignore[arg-type]
    with pytest.raises(NotRecordable, match="packed_attention, which the core has no operation for"):
        packed_attention(heads, heads, heads, torch.tensor([0, 1]), scale=1.0)  # type: ignore[arg-type]
    with pytest.raises(NotRecordable, match="float64"):
        write_kv(heads, heads, *(torch.zeros(1, 4, 2, 4, dtype=torch.float64) for _ in range(2)), slots)
    keys = torch.zeros(1, 4, 2, 8)[..., ::2]
    with pytest.raises(NotRecordable, match="KV cache"):
        paged_attention(heads, keys, keys, TapeInput("t"), TapeInput("s"), TapeInput("l"), scale=1.0)
