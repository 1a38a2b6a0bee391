"""Matching a checkpoint with the spec of its model, by header alone: what is missing, unknown, misshapen or in a format
that quire does not have is an error that names it. Torch-free.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from quire.config.dtypes import PLAIN_FLOATS
from quire.core.errors import CheckpointError
from quire.core.ggml_types import PACKED
from quire.core.nearest import did_you_mean
from quire.models.loading.kv_scales import KVScaleName, kv_scale_name
from quire.models.loading.quantization.schemes import Schemes
from quire.models.loading.spans import TensorSpan
from quire.models.loading.tensor_names import FileNames
from quire.spec.layout import Layout, as_found, file_shape
from quire.spec.model import ModelSpec
from quire.spec.quantization import ANY
from quire.spec.tensor import TensorSpec

FORMATS = "float32, float16 and bfloat16 weights in safetensors files, and GGUF files"
"""Where no quantization_config says more."""


@dataclass(frozen=True, slots=True)
class Found:
    """A tensor of the spec and where it lies."""

    tensor: TensorSpec
    span: TensorSpan
    layout: Layout
    others: tuple[TensorSpan, ...] = ()
    """What follows in the same file, where it has the tensor in several pieces."""

    @property
    def spans(self) -> tuple[TensorSpan, ...]:
        return self.span, *self.others


@dataclass(frozen=True, slots=True)
class Matched:
    """A spec and its tensors in a checkpoint, in the order of the files."""

    spec: ModelSpec
    """Without a head where the checkpoint has none."""
    found: dict[str, Found]
    """By the tensor's name in the spec."""
    schemes: Schemes = field(default_factory=dict)
    """Of the parts of matrices that are quantized."""
    left_out: tuple[str, ...] = ()
    """Which tensors of other parts of the model there are, and why they do not run."""
    kv_scales: dict[KVScaleName, TensorSpan] = field(default_factory=dict)
    """What keys and values are to be divided by where they are stored in fp8."""


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
        found[tensor.name] = _checked(Found(tensor, span, names.layout(tensor)), source)
    missing = [tensor.name for tensor in names.tensors if tensor.name not in found and not tensor.optional]
    if missing and spec.head is not None and set(missing) <= {tensor.name for tensor in spec.head.tensors()}:
        return Matched(spec.without_head(), found, left_out=_left_out(spec, spans), kv_scales=scales)
    if missing:
        written = {tensor.name: name for name, tensor in reversed(list(names.spelled.items()))}
        raise CheckpointError(
            f"{source} lacks {_count(missing)} that its config asks for, {written.get(missing[0], missing[0])} "
            f"{'among them' if len(missing) > 1 else 'alone'}; the download may be incomplete."
        )
    return Matched(spec, found, left_out=_left_out(spec, spans), kv_scales=scales)


def _left_out(spec: ModelSpec, spans: Sequence[TensorSpan]) -> tuple[str, ...]:
    found: list[str] = []
    for pattern, reason in spec.left_out:
        names = [span.name for span in spans if re.fullmatch(pattern, span.name)]
        if names:
            parts = sorted({name.partition(".")[0] for name in names})
            found.append(f"{_count(names)} of {' and '.join(parts)}: {reason}")
    return tuple(found)


def _check_unused(span: TensorSpan, names: FileNames, spec: ModelSpec, source: str) -> None:
    if names.unused.fullmatch(span.name):
        return
    raise CheckpointError(
        f"{source}: tensor {span.name[:80]!r} has no place in a {spec.architecture} of {spec.num_layers} layers; the "
        f"files are damaged, or of a variant or format that quire does not run.{did_you_mean(span.name, names.spelled)}"
    )


def _checked(found: Found, source: str) -> Found:
    tensor, span = found.tensor, found.span
    where = f"{source}: tensor {span.name[:80]!r}"
    if tensor.kinds:
        return replace(found, span=_checked_codes(tensor, span, where))
    if span.dtype not in PLAIN_FLOATS and not (span.dtype in PACKED and tensor.use == "matrix"):
        allowed = "a plain floating-point type" if tensor.use == "vector" else FORMATS
        raise CheckpointError(f"{where} is stored as {span.dtype}, which quire does not run there; it runs {allowed}.")
    found = replace(found, layout=as_found(tensor.shape, found.layout, span.shape))
    shape = file_shape(tensor.shape, found.layout)
    if span.shape != shape:
        raise CheckpointError(
            f"{where} has shape {list(span.shape)}, and the model's config asks for {list(shape)}; the weights and the "
            "config do not belong together."
        )
    return found


def _checked_codes(tensor: TensorSpec, span: TensorSpan, where: str) -> TensorSpan:
    """A tensor that holds some of a quantized weight, in the shape that the format gives it."""
    if span.dtype not in tensor.kinds:
        raise CheckpointError(
            f"{where} is stored as {span.dtype}, and the quantization_config asks for {' or '.join(tensor.kinds)}; the "
            "weights and the config do not belong together."
        )
    if _without_ones(tensor.shape) == _without_ones(span.shape):
        return replace(span, shape=tensor.shape)
    if tensor.shape == _unstacked(span.shape):
        return replace(span, shape=tensor.shape)
    if tensor.shape == (ANY,) and len(span.shape) == 1:
        return span
    raise CheckpointError(
        f"{where} has shape {list(span.shape)}, and the quantization_config asks for {list(tensor.shape)}; the weights "
        "and the config do not belong together."
    )


def _unstacked(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Rows of all experts one below the other."""
    return (shape[0] * shape[1], *shape[2:]) if len(shape) > 1 else shape


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _count(names: Iterable[str]) -> str:
    number = len(list(names))
    return f"{number} tensors" if number > 1 else "a tensor"
