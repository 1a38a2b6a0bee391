"""How a worker holds the matrices of its model: the method of their format, and what a rank takes of stored tensors."""

from collections.abc import Iterable
from dataclasses import replace

import torch

from quire.config.resolved import Resolved
from quire.layers.quant.base import LinearMethod
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.gguf import GgufMethod
from quire.layers.quant.packed import PackedMethod
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.loading.match import Matched
from quire.models.loading.quantization.schemes import Schemes
from quire.ops.cpu.packing import Packing
from quire.spec.quantization import online_schemes
from quire.spec.share import Share
from quire.spec.tensor import TensorSpec
from quire.worker.cpu_core import CpuCore


def method_of(
    matched: Matched, resolved: Resolved, dtype: torch.dtype, device: torch.device, core: CpuCore | None
) -> LinearMethod:
    """How matrices are held and multiplied by."""
    schemes = schemes_of(matched, resolved)
    keep = resolved.keep_packed
    if core is not None:
        return PackedMethod(Packing(core.machine, core.cache), keep=keep, schemes=schemes)
    if schemes:
        return QuantizedMethod(schemes, dtype, expand=not keep, batch_invariant=resolved.batch_invariant)
    if keep:
        return GgufMethod(dtype, in_planes=device.type == "cuda")
    return DenseMethod(dtype, batch_invariant=resolved.batch_invariant)


def schemes_of(matched: Matched, resolved: Resolved) -> Schemes:
    """How the parts of matrices are quantized; random weights are so as they are made."""
    if resolved.quantization is not None:
        return online_schemes(matched.spec, resolved.quantization)
    if resolved.random_weights:
        return {part: replace(scheme, method="online") for part, scheme in matched.schemes.items()}
    return matched.schemes


def shares_of(tensors: Iterable[TensorSpec], schemes: Schemes) -> dict[str, Share]:
    """What a rank takes of tensors; of a part that is quantized it takes its share when that is put together."""
    return {
        tensor.name: tensor.share
        for tensor in tensors
        if tensor.share is not None and tensor.name.removesuffix(".weight") not in schemes
    }
