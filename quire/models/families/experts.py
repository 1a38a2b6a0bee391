"""Experts as families are built of them: a router, stacks of matrices and shared experts, under the usual names."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.core.routing import Routing
from quire.models.families.blocks import activation, gated_mlp
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import GGUFModel
from quire.spec.experts import ExpertsSpec
from quire.spec.layout import AS_STORED, Layout, StackedRows
from quire.spec.matrix import Cut, MatrixSpec, Part
from quire.spec.mlp import Activation, MlpSpec
from quire.spec.tensor import TensorSpec

_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
STACKED = "experts_are_stacked"
"""What GGUF's configs say: each kind of matrix is one tensor for all experts."""


def experts(
    dims: Dimensions,
    layer: int,
    routing: Routing,
    *,
    size: int,
    prefix: str = "model.layers.{}.mlp.",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    router: str = "gate",
    correction: str | None = None,
    shared: MlpSpec | None = None,
    shared_gate: str | None = None,
) -> ExpertsSpec:
    """`size` is that of one expert; `correction` and `shared_gate` are names of tensors below `prefix`."""
    start, count, hidden = prefix.format(layer), num_experts(dims), dims.hidden_size
    check_routing(dims, routing)

    def stack(roles: tuple[str, ...], rows: int, columns: int, cut: Cut) -> MatrixSpec:
        named = dict(zip(("gate", "up", "down"), names, strict=True))
        parts = [part for role in roles for part in _parts(dims, start, named[role], role, rows)]
        return MatrixSpec(tuple(parts), columns, cut, layer=layer, experts=count)

    return ExpertsSpec(
        router=_whole(f"{start}{router}", "router", count, hidden, layer),
        routing=routing,
        up=stack(("gate", "up"), size, hidden, "rows"),
        down=stack(("down",), hidden, size, "columns"),
        activation=activation(dims),
        correction=None if correction is None else _correction(f"{start}{correction}", count, layer),
        shared=shared,
        shared_gate=None if shared_gate is None else _whole(f"{start}{shared_gate}", "shared_router", 1, hidden, layer),
    )


def fused_experts(
    dims: Dimensions,
    layer: int,
    routing: Routing,
    *,
    size: int,
    names: tuple[str, str, str],
    transposed: bool = False,
    either_way: bool = False,
    interleaved: bool = False,
    bias: bool = False,
    activated: Activation | None = None,
    weighs_input: bool = False,
    shared: MlpSpec | None = None,
) -> ExpertsSpec:
    """`names` are those of the router, of all experts' gates and ups in one tensor, and of their downs in another;
    `transposed`, `either_way` and `interleaved` are as `StackedRows` has them. GGUF's gates and ups are tensors of
    their own.
    """
    router, up, down = (name.format(layer) for name in names)
    count, hidden = num_experts(dims), dims.hidden_size
    check_routing(dims, routing)
    if dims.fields.flag(STACKED, False):
        stacked = StackedRows(count, size)
        above = tuple(
            Part(f"{up}.{role}", f"expert_{role}", count * size, AS_STORED, stacked) for role in ("gate", "up")
        )
    else:
        both = StackedRows(count, size, 2, interleaved, transposed, either_way)
        above = (Part(up, "expert_gate_up", 2 * count * size, both),)
    downs = StackedRows(count, hidden, transposed=transposed, either_way=either_way)
    below = Part(down, "expert_down", count * hidden, downs, StackedRows(count, hidden))
    return ExpertsSpec(
        router=_whole(router, "router", count, hidden, layer, bias=bias),
        routing=routing,
        up=MatrixSpec(above, hidden, "rows", bias, layer, experts=count),
        down=MatrixSpec((below,), size, "columns", bias, layer, experts=count),
        activation=activated or activation(dims),
        weighs_input=weighs_input,
        shared=shared,
    )


def shared_experts(dims: Dimensions, layer: int, name: str, size: int) -> MlpSpec:
    """An MLP that every token has, called `name` beside the router."""
    return gated_mlp(dims, layer, prefix=f"model.layers.{{}}.mlp.{name}.", size=size, role="shared_")


def num_experts(dims: Dimensions) -> int:
    return dims.fields.size(*_COUNTS)


def check_routing(dims: Dimensions, routing: Routing) -> None:
    """Refuse a choice that cannot be made."""
    count, source = num_experts(dims), dims.source
    groups, top_groups = routing.groups, routing.top_groups
    if count % groups or top_groups > groups:
        raise CheckpointError(
            f"{source} gives {count} experts in {groups} groups, of which a token chooses {top_groups}; groups must "
            "divide the experts, and no more of them can be chosen than there are."
        )
    if routing.top_k > count // groups * top_groups:
        raise CheckpointError(
            f"{source} gives every token {routing.top_k} experts, but there are {count // groups * top_groups} to "
            "choose from."
        )


def gguf_experts(model: GGUFModel) -> dict[str, Any]:
    """What GGUF metadata says of experts, under the names of Qwen's configs."""
    found: dict[str, Any] = {
        STACKED: True,
        "num_experts": model.read.size("expert_count"),
        "num_experts_per_tok": model.read.size("expert_used_count"),
    }
    size = model.read.size_or_none("expert_feed_forward_length")
    return found | ({} if size is None else {"moe_intermediate_size": size})


def _parts(dims: Dimensions, start: str, name: str, role: str, rows: int) -> list[Part]:
    """A tensor for each expert, or one for all."""
    count = num_experts(dims)
    if dims.fields.flag(STACKED, False):
        stacked: Layout = StackedRows(count, rows)
        return [Part(f"{start}experts.{name}", f"expert_{role}", count * rows, AS_STORED, stacked)]
    return [Part(f"{start}experts.{each}.{name}", f"expert_{role}.{each}", rows) for each in range(count)]


def _correction(name: str, count: int, layer: int) -> TensorSpec:
    return TensorSpec(name, (count,), "vector", "router_correction", "bias", layer)


def _whole(name: str, role: str, rows: int, columns: int, layer: int, *, bias: bool = False) -> MatrixSpec:
    """A matrix that every rank has all of."""
    return MatrixSpec((Part(name, role, rows),), columns, "none", bias, layer)
