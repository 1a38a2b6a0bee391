"""Which implementation of an op runs, also while torch.compile reads the code that calls it.

What is being compiled is made of definitions, which the compiler fuses as it likes; only products on a GPU stay the
kernels' own, as one call that it does not look into.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from quire.ops import dispatch
from quire.ops.reference.activate import activate
from quire.ops.reference.add_layer_norm import add_layer_norm
from quire.ops.reference.add_rms_norm import add_rms_norm
from quire.ops.reference.gated_activation import gated_activation
from quire.ops.reference.layer_norm import layer_norm
from quire.ops.reference.rms_norm import rms_norm


def implementation(op: str, device_type: str) -> Callable[..., Any]:
    """The implementation of `op` for a device type, or for a compiler that follows the call."""
    if torch.compiler.is_compiling() and op in COMPILED:
        return COMPILED[op]
    return dispatch.implementation(op, device_type)


@torch.library.custom_op("quire::linear", mutates_args=())
def _opaque_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = dispatch.implementation("linear", x.device.type)(x, weight, bias)
    return result


@_opaque_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # the kernels for few rows are faster than what a compiler would call
    result: Tensor = _opaque_linear(x, weight, bias) if x.is_cuda else functional.linear(x, weight, bias)
    return result


COMPILED: dict[str, Callable[..., Any]] = {
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "layer_norm": layer_norm,
    "add_layer_norm": add_layer_norm,
    "activate": activate,
    "gated_activation": gated_activation,
    "linear": _linear,
}
"""By op: what a compiler reads in place of a kernel. All that a layer calls on either side of its attention."""
