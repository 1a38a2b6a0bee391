"""Experts of the native core against their definitions: routing, the matmuls of all types, and what rows may choose."""

import pytest
import torch
from torch import Tensor

from quire.core.routing import Routing
from quire.ops.cpu.matrix import StoredRows
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.cpu.tape import NotRecordable, Tape, Value
from quire.ops.functional import experts_mlp, route_tokens
from quire.ops.reference.experts_mlp import experts_mlp as reference
from tests.ops.cpu.blocks import columns_of, float_rows, random_rows
from tests.ops.cpu.machines import VARIANTS, every_thread_count, every_variant, needs_core, pack, run_recorded

pytestmark = needs_core

EXPERTS, SIZE, HIDDEN = 6, 48, 64
ROUTINGS = [
    Routing(2),
    Routing(3, renormalize=False, scale=2.5),
    Routing(4, scores="sigmoid"),
    Routing(2, scores="sparsemixer"),
    Routing(3, scores="sparsemixer", nearness=0.6, scale=2.0),
    Routing(3, groups=4, top_groups=2, group_score="largest"),
    Routing(4, scores="sigmoid", groups=4, top_groups=2, scale=1.5),
]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def stored(kind: str, rows: int, columns: int, seed: int) -> StoredRows:
    if kind.startswith(("float", "bfloat")):
        return float_rows(kind, rows, columns, seed)
    return random_rows(kind, rows, columns // columns_of(kind, 1), seed)


def stacks(
    variant: str,
    kinds: tuple[str, str, str],
    size: int = SIZE,
    hidden: int = HIDDEN,
    biases: tuple[Tensor | None, Tensor | None] = (None, None),
) -> list[PackedLinear]:
    """Gates and ups of all experts, and their downs, each in a type of its own."""
    gate, up, down = kinds
    above = [stored(gate, EXPERTS * size, hidden, 1), stored(up, EXPERTS * size, hidden, 2)]
    return [
        pack(variant, above, hidden, biases[0]),
        pack(variant, [stored(down, EXPERTS * hidden, size, 3)], size, biases[1]),
    ]


def values(stack: PackedLinear) -> Tensor:
    parts = [PackedLinear(stack._machine, [matrix]) for matrix in stack.matrices]
    return torch.cat([part.lookup(torch.arange(part.only.rows)) for part in parts])


def recorded(
    variant: str, x: Tensor, logits: Tensor, matrices: list[PackedLinear], prompts: range = range(0), threads: int = 2
) -> Tensor:
    def op(x: Value, logits: Value) -> Value:
        ids, weights = route_tokens(logits, None, Routing(2))
        return experts_mlp(x, ids, weights, *matrices, "silu")

    return run_recorded(variant, op, x, logits, threads=threads, prompts=prompts)


def wanted(x: Tensor, logits: Tensor, matrices: list[PackedLinear]) -> Tensor:
    return reference(x, *route_tokens(logits, None, Routing(2)), *map(values, matrices), "silu")


def assert_near(found: Tensor, right: Tensor, error: float) -> None:
    assert float((found - right).norm() / right.norm()) < error


@every_variant
@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
@pytest.mark.parametrize("has_correction", [False, True])
def test_routing(variant: str, routing: Routing, has_correction: bool) -> None:
    logits, correction = normal(9, 16), normal(16, seed=1) if has_correction else None
    ids, weights = route_tokens(logits, correction, routing)
    factors = run_recorded(variant, lambda logits: route_tokens(logits, correction, routing)[1], logits, threads=2)
    torch.testing.assert_close(factors, weights, atol=1e-6, rtol=1e-5)
    # numbers of experts are int32 in the place of floats, and survive being copied as these: tiny ones, but exact
    numbers = run_recorded(variant, lambda logits: route_tokens(logits, correction, routing)[0], logits)
    assert torch.equal(numbers.view(torch.int32).long(), ids)


def test_equal_scores_and_scores_that_are_none() -> None:
    logits = torch.tensor([[0.0] * 8, [torch.nan] * 8, [-torch.inf, torch.inf, 1, 2, 3, torch.nan, 5, 6]])
    for routing in (
        Routing(3),
        Routing(3, groups=4, top_groups=2),
        Routing(8, scores="sigmoid"),
        Routing(2, scores="sparsemixer"),
    ):
        found = run_recorded(VARIANTS[0], lambda logits, how=routing: route_tokens(logits, None, how)[0], logits)
        ids = found.view(torch.int32)
        assert ids[0].tolist() == list(range(routing.top_k))
        for row in ids.tolist():
            assert len(set(row)) == routing.top_k
            assert set(row) <= set(range(8))


@every_variant
@every_thread_count
@pytest.mark.parametrize(
    ("kinds", "error"),
    [
        (("float32", "float32", "float32"), 1e-5),
        (("bfloat16", "bfloat16", "bfloat16"), 0.01),
        (("Q4_0", "Q4_0", "Q4_0"), 0.02),
        (("Q8_0", "float32", "Q4_0"), 0.02),
        (("MXFP4", "MXFP4", "MXFP4"), 0.03),
    ],
)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_every_number_of_rows(variant: str, threads: int, kinds: tuple[str, str, str], error: float, rows: int) -> None:
    size = 64 if kinds[2] in ("Q4_0", "MXFP4") else SIZE  # whole blocks
    matrices = stacks(variant, kinds, size)
    x, logits = normal(rows, HIDDEN), normal(rows, EXPERTS, seed=1)
    assert_near(recorded(variant, x, logits, matrices, threads=threads), wanted(x, logits, matrices), error)


@every_variant
def test_rows_that_all_choose_the_same_experts(variant: str) -> None:
    matrices = stacks(variant, ("float32",) * 3)
    logits = torch.tensor([0.0, 9.0, 0.0, 0.0, 8.0, 0.0]).expand(33, EXPERTS).contiguous()
    x = normal(33, HIDDEN)
    assert_near(recorded(variant, x, logits, matrices), wanted(x, logits, matrices), 1e-5)


@every_variant
@every_thread_count
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("weighs_input", [False, True])
def test_experts_as_single_families_have_them(variant: str, threads: int, rows: int, weighs_input: bool) -> None:
    """Biases, the activation of gpt-oss, Llama 4's weights of inputs."""
    biases = normal(2 * EXPERTS * SIZE, seed=5), normal(EXPERTS * HIDDEN, seed=6)
    matrices = stacks(variant, ("float32",) * 3, biases=biases)
    x, logits = normal(rows, HIDDEN), normal(rows, EXPERTS, seed=1)
    how = {"up_bias": biases[0], "down_bias": biases[1], "weighs_input": weighs_input}
    routing = Routing(3, "sigmoid", renormalize=False, scale=1.3)

    def op(x: Value, logits: Value) -> Value:
        return experts_mlp(x, *route_tokens(logits, None, routing), *matrices, "clamped_swiglu", **how)

    found = run_recorded(variant, op, x, logits, threads=threads, prompts=range(rows // 2))
    ids, weights = route_tokens(logits, None, routing)
    assert_near(found, reference(x, ids, weights, *map(values, matrices), "clamped_swiglu", **how), 1e-5)


@every_variant
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "Q4_0", "MXFP4"])
def test_a_row_does_not_depend_on_the_others(variant: str, kind: str) -> None:
    """Bit for bit, whether alone or beside others; those of prompts may be computed in another way, but alike."""
    matrices = stacks(variant, (kind,) * 3, 64)
    x, logits = normal(50, HIDDEN), normal(50, EXPERTS, seed=1)
    together = recorded(variant, x, logits, matrices, range(5, 45))
    for row in (0, 4, 5, 20, 44, 45, 49):
        alone = slice(row, row + 1)
        prompts = range(1) if 5 <= row < 45 else range(0)
        found = recorded(variant, x[alone].contiguous(), logits[alone].contiguous(), matrices, prompts)
        assert torch.equal(found[0], together[row])


def test_programs_of_several_sizes_one_after_the_other() -> None:
    """What the steps share grows, and what one run left there is not seen by the next."""
    matrices = stacks(VARIANTS[0], ("Q4_0",) * 3, 64)
    for rows in (2, 64, 1, 17):
        x, logits = normal(rows, HIDDEN, seed=rows), normal(rows, EXPERTS, seed=rows + 1)
        assert_near(recorded(VARIANTS[0], x, logits, matrices), wanted(x, logits, matrices), 0.02)


def test_a_shared_gate_scales_each_row() -> None:
    x, gate = normal(5, 32), normal(5, 1, seed=1)
    found = run_recorded(VARIANTS[0], lambda x, gate: gate.sigmoid() * x, x, gate, threads=2)
    torch.testing.assert_close(found, gate.sigmoid() * x)


def test_what_is_not_recorded_is_told() -> None:
    tape = Tape()
    ids, weights = tape.value(2), tape.value(2)
    odd = stacks(VARIANTS[0], ("float32",) * 3, 40)
    with pytest.raises(NotRecordable, match="experts of 40 between rows of 64"):
        experts_mlp(tape.value(HIDDEN), ids, weights, *odd, "silu")
    with pytest.raises(NotRecordable, match="the activation quick_gelu"):
        experts_mlp(tape.value(HIDDEN), ids, weights, *stacks(VARIANTS[0], ("float32",) * 3), "quick_gelu")
    with pytest.raises(NotRecordable, match="routing by hash"):
        route_tokens(tape.value(8), None, Routing(2, scores="hash"))  # type: ignore[arg-type]
