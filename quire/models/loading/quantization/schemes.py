"""From a spec and a quantization_config to the scheme of every quantized part, and the tensors that hold it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.models.loading.quantization.fields import SchemeOf
from quire.spec.layout import AS_STORED, Layout, StackedRows, Transposed
from quire.spec.model import ModelSpec
from quire.spec.quantization import WeightScheme
from quire.spec.tensor import TensorSpec

Schemes = Mapping[str, WeightScheme]
"""By the name of a part of a matrix; parts that are left out are plain."""

_OF_ROWS = ("mxfp4",)
"""Methods whose tensors have rows of outputs, however plain ones lie."""
_SCALES = r".*\.(input_scale|input_zero_point|output_scale|[qkv]_scale|[qkv]_zero_point)"
_BIASES = r".*\.bias"


def quantized_parts(spec: ModelSpec, scheme_of: SchemeOf, plain: Collection[str], source: str) -> Schemes:
    """`plain` are parts that the files hold as plain numbers, whatever the config says."""
    tables = {table.name for table in (spec.embedding.words, spec.embedding.positions, spec.embedding.types) if table}
    found: dict[str, WeightScheme] = {}
    for matrix in spec.matrices():
        if matrix.name in tables:
            continue
        for part in matrix.parts:
            scheme = None if part.name in plain else scheme_of(part.name, matrix.layer is not None)
            if scheme is None:
                continue
            if _is_turned(part.layout) and scheme.method not in _OF_ROWS:
                raise CheckpointError(
                    f"{source}: {part.name} is quantized and stored transposed, as {spec.architecture} does, which "
                    "quire does not run; take the model's 16-bit weights or a GGUF file."
                )
            found[part.name] = scheme
    return found


def _is_turned(layout: Layout) -> bool:
    return isinstance(layout, Transposed) or (isinstance(layout, StackedRows) and layout.transposed)


def stored_tensors(spec: ModelSpec, schemes: Schemes) -> Iterator[TensorSpec]:
    """Every tensor that a checkpoint of this model holds."""
    for tensor in spec.tensors():
        part = tensor.name.removesuffix(".weight")
        scheme = schemes.get(part) if tensor.use == "matrix" else None
        if scheme is None:
            yield tensor
            continue
        rows, columns = tensor.shape
        for each in scheme.tensors(rows, columns):
            yield replace(
                tensor,
                name=f"{part}.{each.ending}",
                shape=each.shape,
                layout=AS_STORED,
                kinds=each.kinds,
                optional=each.optional,
            )


def unused_patterns(schemes: Schemes) -> tuple[str, ...]:
    """Of tensors that checkpoints hold and a model needs only sometimes."""
    is_gptq = any(scheme.method == "gptq" for scheme in schemes.values())  # its tools write biases of zeros
    return (_SCALES, _BIASES) if is_gptq else (_SCALES,) if schemes else ()


def without_lacking(spec: ModelSpec, schemes: Schemes, found: Collection[str]) -> Schemes:
    """The schemes, each with the optional tensors that the files do not have."""
    lacking: dict[str, set[str]] = {}
    for tensor in stored_tensors(spec, schemes):
        if tensor.optional and tensor.name not in found:
            part = next(part for part in _places(tensor.name) if part in schemes)
            lacking.setdefault(part, set()).add(tensor.name.removeprefix(f"{part}."))
    return {part: replace(scheme, lacks=frozenset(lacking.get(part, ()))) for part, scheme in schemes.items()}


def _places(name: str) -> Iterator[str]:
    """The names that a tensor's name begins with, the longest first."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name
