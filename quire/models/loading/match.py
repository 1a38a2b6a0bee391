"""Matching a checkpoint with the spec of its model, by header alone: what is missing, unknown, misshapen or in a format
that quire does not have is an error that names it. Torch-free.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quire.config.dtypes import PLAIN_FLOATS
from quire.core.errors import CheckpointError
from quire.core.ggml_types import PACKED
from quire.core.nearest import did_you_mean
from quire.models.families.dimensions import text_values
from quire.models.loading.kv_scales import KVScaleName, kv_scale_name
from quire.models.loading.spans import TensorSpan
from quire.models.loading.tensor_names import FileNames
from quire.spec.layout import Layout, file_shape
from quire.spec.model import ModelSpec
from quire.spec.tensor import TensorSpec

FORMATS = "float32, float16 and bfloat16 weights in safetensors files, and GGUF files"


@dataclass(frozen=True, slots=True)
class Found:
    """A tensor of the spec and where it lies."""

    tensor: TensorSpec
    span: TensorSpan
    layout: Layout


@dataclass(frozen=True, slots=True)
class Matched:
    """A spec and its tensors in a checkpoint, in the order of the files."""

    spec: ModelSpec
    """Without a head where the checkpoint has none."""
    found: dict[str, Found]
    """By the tensor's name in the spec."""
    kv_scales: dict[KVScaleName, TensorSpan] = field(default_factory=dict)
    """What keys and values are to be divided by where they are stored in fp8."""


def check_format(config: Mapping[str, Any], source: str) -> None:
    """Refuse weights in a format that quire does not have."""
    values = text_values(config)
    quantization = values.get("quantization_config") or values.get("compression_config")
    if not quantization:
        return
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    named = repr(str(method)[:60]) if method else "a format without a name"
    raise CheckpointError(
        f"{source}: quantization_config gives {named}, which quire does not run yet; it runs {FORMATS}."
    )


def match(spec: ModelSpec, spans: Sequence[TensorSpan], names: FileNames, source: str) -> Matched:
    """Every tensor of the spec with its place in the files, or an error."""
    found: dict[str, Found] = {}
    scales: dict[KVScaleName, TensorSpan] = {}
    for span in spans:
        tensor = names.find(span.name)
        scale = kv_scale_name(span.name) if tensor is None else None
        if scale is not None:
            scales[scale] = span
            continue
        if tensor is None:
            _check_unused(span, names, spec, source)
            continue
        if tensor.name in found:
            raise CheckpointError(f"{source} holds tensor {tensor.name!r} twice, the second as {span.name[:80]!r}.")
        found[tensor.name] = Found(tensor, span, names.layout(tensor))
        _check(found[tensor.name], source)
    missing = [tensor.name for tensor in spec.tensors() if tensor.name not in found]
    if missing and spec.head is not None and set(missing) <= {tensor.name for tensor in spec.head.tensors()}:
        return Matched(spec.without_head(), found, scales)
    if missing:
        raise CheckpointError(
            f"{source} lacks {_count(missing)} that its config asks for, {missing[0]} "
            f"{'among them' if len(missing) > 1 else 'alone'}; the download may be incomplete."
        )
    return Matched(spec, found, scales)


def _check_unused(span: TensorSpan, names: FileNames, spec: ModelSpec, source: str) -> None:
    if names.unused.fullmatch(span.name):
        return
    raise CheckpointError(
        f"{source}: tensor {span.name[:80]!r} has no place in a {spec.architecture} of {spec.num_layers} layers; the "
        f"files are damaged, or of a variant or format that quire does not run.{did_you_mean(span.name, names.spelled)}"
    )


def _check(found: Found, source: str) -> None:
    tensor, span = found.tensor, found.span
    where = f"{source}: tensor {span.name[:80]!r}"
    if span.dtype not in PLAIN_FLOATS and not (span.dtype in PACKED and tensor.use == "matrix"):
        allowed = "a plain floating-point type" if tensor.use == "vector" else FORMATS
        raise CheckpointError(f"{where} is stored as {span.dtype}, which quire does not run there; it runs {allowed}.")
    shape = file_shape(tensor.shape, found.layout)
    if span.shape != shape:
        raise CheckpointError(
            f"{where} has shape {list(span.shape)}, and the model's config asks for {list(shape)}; the weights and the "
            "config do not belong together."
        )


def _count(names: Iterable[str]) -> str:
    number = len(list(names))
    return f"{number} tensors" if number > 1 else "a tensor"
