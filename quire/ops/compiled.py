"""What torch.compile reads in place of ops; imported only where a model is compiled.

What is being compiled is made of definitions, which the compiler fuses as it likes; only matmuls on a GPU stay the
kernels' own, as one call that it does not look into.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from quire.ops import functional
from quire.ops.dispatch import implementation


@torch.library.custom_op("quire::linear", mutates_args=())
def _opaque_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = implementation("linear", x.device.type)(x, weight, bias)
    return result


@_opaque_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    # the kernels for skinny GEMMs are faster than what a compiler would call
    result: Tensor = _opaque_linear(x, weight, bias) if x.is_cuda else torch.nn.functional.linear(x, weight, bias)
    return result


_DEFINED = ("rms_norm", "add_rms_norm", "layer_norm", "add_layer_norm", "activate", "gated_activation")
COMPILED: dict[Callable[..., Any], Callable[..., Any]] = {
    **{getattr(functional, op): implementation(op, "reference") for op in _DEFINED},
    functional.linear: _linear,
}
"""By op: what a compiler reads in its place. All that a layer calls on either side of its attention."""


@cache
def compile_definitions() -> None:
    """From now on, what is compiled is made of these. What is not compiled calls its ops as ever."""
    for op, definition in COMPILED.items():
        torch.compiler.substitute_in_graph(op)(definition)
