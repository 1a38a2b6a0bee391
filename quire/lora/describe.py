"""DescribedAdapter: an adapter's files matched with the model's matrices, every name and shape checked. Torch-free."""

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from quire.core.errors import CheckpointError
from quire.core.nearest import did_you_mean
from quire.lora.settings import CONFIG, AdapterSettings, read_settings
from quire.models.loading.safetensors_header import SafetensorsHeader, parse_safetensors_header, read_header_bytes
from quire.models.loading.spans import TensorSpan
from quire.models.loading.tensor_names import moved_name
from quire.spec.lora import (
    EMBEDDING,
    EXPERTS,
    PAGE_RANK,
    AdaptedMatrix,
    PageLayout,
    adapted_matrices,
    head_name,
    joined_experts,
)
from quire.spec.model import ModelSpec

WEIGHTS = "adapter_model.safetensors"
_PICKLED = "adapter_model.bin"
_PREFIX = "base_model.model."
_NAME = re.compile(
    r"(?P<module>.+?)\.(?P<kind>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)"
    r"(\.default)?(\.weight)?"
)
_COPY = re.compile(r"(?P<module>.+?)(\.base_layer)?\.weight")
_MOST_KINDS = 32
"""Of adapters that are remembered: a server has few, each with hundreds of adapters."""
_FLOATS = frozenset({"float32", "float16", "bfloat16", "float64"})
Kind = Literal["down", "up", "magnitude"]
_KINDS: dict[str, Kind] = {
    "lora_A": "down",
    "lora_B": "up",
    "lora_embedding_A": "down",
    "lora_embedding_B": "up",
    "lora_magnitude_vector": "magnitude",
}


@dataclass(frozen=True, slots=True)
class AdapterLimits:
    """What an adapter may have."""

    max_rank: int
    targets: frozenset[str]
    """Kinds of matrices that room is kept for."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The matrices that an adapter has for one part, of one expert or of all."""

    matrix: AdaptedMatrix
    parts: tuple[int, ...]
    """Of the matrix, which these rows belong to; two where gate and up of experts are one."""
    expert: int | None
    """None: all experts, one after the other."""
    rank: int
    scale: float
    down: TensorSpan
    up: TensorSpan
    magnitude: TensorSpan | None


@dataclass(frozen=True, slots=True)
class DescribedAdapter:
    """What a folder holds, without any of its numbers."""

    file: Path
    placed: tuple[Placed, ...]
    version: str

    @property
    def rank(self) -> int:
        """The largest."""
        return max(each.rank for each in self.placed)

    @property
    def num_pages(self) -> int:
        return -(-self.rank // PAGE_RANK)

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(each.matrix.target for each in self.placed)


@dataclass(frozen=True, slots=True)
class EarlierAdapters:
    """What files held that were described for one model. Adapters of one training differ in their numbers alone, so
    where header and settings are those of an earlier one its matrices are not matched again: that takes 10 ms of the
    interpreter, for which a thread that reads adapters would keep the steps waiting.
    """

    _placed: OrderedDict[bytes, tuple[Placed, ...]] = field(default_factory=OrderedDict)

    def find(self, kind: bytes) -> tuple[Placed, ...] | None:
        return self._placed.get(kind)

    def keep(self, kind: bytes, placed: tuple[Placed, ...]) -> None:
        self._placed[kind] = placed
        if len(self._placed) > _MOST_KINDS:
            self._placed.popitem(last=False)


def describe_adapter(
    folder: Path,
    spec: ModelSpec,
    limits: AdapterLimits,
    layout: PageLayout | None = None,
    earlier: EarlierAdapters | None = None,
) -> DescribedAdapter:
    """Raises CheckpointError, which names the tensor, for what does not fit the model or the limits.

    `spec` is the whole model's; `layout` may be that of a rank, which has some of its matrices, or some of each.
    `earlier` are other adapters that were described with the same three.
    """
    settings = read_settings(folder)
    file = folder / WEIGHTS
    if not file.is_file():
        if (folder / _PICKLED).exists():
            raise CheckpointError(
                f"{folder} holds {_PICKLED}, a pickle, which could run any code; save the adapter as {WEIGHTS} "
                "(peft's save_pretrained does)."
            )
        raise CheckpointError(f"{folder} has no {WEIGHTS}.")
    header = read_header_bytes(file)
    kind = blake2b(f"{settings} {header.file_size}\n".encode() + header.json).digest()
    placed = None if earlier is None else earlier.find(kind)
    if placed is None:
        placed = _all_placed(parse_safetensors_header(header, file), spec, limits, layout, settings, file)
        if earlier is not None:
            earlier.keep(kind, placed)
    return DescribedAdapter(file, placed, adapter_version(folder))


def adapter_version(folder: Path) -> str:
    """Changes when the files do: their sizes and times of change, and all of the settings."""
    digest = blake2b(digest_size=16)
    for name in (CONFIG, WEIGHTS):
        try:
            status = (folder / name).stat()
        except OSError as error:
            raise CheckpointError(f"cannot read {folder / name}: {error.strerror or error}.") from None
        digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    digest.update((folder / CONFIG).read_bytes())
    return digest.hexdigest()


def _all_placed(
    header: SafetensorsHeader,
    spec: ModelSpec,
    limits: AdapterLimits,
    layout: PageLayout | None,
    settings: AdapterSettings,
    file: Path,
) -> tuple[Placed, ...]:
    modules = _modules(spec, layout)
    found = _grouped(header.tensors, modules, spec, file)
    placed = tuple(_placed(module, tensors, modules, settings, limits, file) for module, tensors in found.items())
    if not placed:
        raise CheckpointError(f"{file} holds no LoRA matrices.")
    return placed


@dataclass(frozen=True, slots=True)
class _Module:
    """One that peft may have given an A and a B."""

    matrix: AdaptedMatrix
    parts: tuple[int, ...]
    expert: int | None


def _modules(spec: ModelSpec, layout: PageLayout | None) -> dict[str, _Module]:
    known: dict[str, _Module] = {}
    for matrix in adapted_matrices(spec) if layout is None else layout.matrices:
        for number, part in enumerate(matrix.parts):
            for expert, name in enumerate(part.modules):
                known[name] = _Module(matrix, (number,), expert)
        if matrix.target == EXPERTS:
            for name in _stack_names(matrix):
                known[f"{name}#{matrix.whole_columns}"] = _Module(matrix, tuple(range(len(matrix.parts))), None)
    if layout is not None:  # matrices that room is not kept for are known too, to be refused by name
        known = _modules(spec, None) | known
    return known


def _stack_names(matrix: AdaptedMatrix) -> list[str]:
    """What transformers calls the module that holds all experts of a layer, now and in the checkpoint's own names."""
    name = matrix.parts[0].modules[0].rpartition(".experts.")[0] + ".experts"
    return [name, name.replace(".block_sparse_moe.", ".mlp.")]


def _grouped(
    tensors: tuple[TensorSpan, ...], modules: Mapping[str, _Module], spec: ModelSpec, file: Path
) -> dict[str, dict[Kind, TensorSpan]]:
    """By module: its tensors."""
    found: dict[str, dict[Kind, TensorSpan]] = {}
    widths: dict[str, int] = {}
    named = [(tensor, _NAME.fullmatch(tensor.name)) for tensor in tensors]
    for tensor, match in named:
        if match is not None and _KINDS[match["kind"]] == "down":
            widths[match["module"]] = tensor.shape[-1] if tensor.shape else 0
    for tensor, match in named:
        if match is None and _is_copy(tensor, spec):
            continue
        if match is None:
            raise CheckpointError(
                f"{file}: tensor {tensor.name[:120]!r} is neither an A nor a B of a LoRA adapter, and quire adds "
                "nothing else."
            )
        module = _known_name(match["module"], widths.get(match["module"], 0), modules, spec)
        if module is None:
            name = match["module"].removeprefix(_PREFIX)
            raise CheckpointError(
                f"{file}: tensor {tensor.name[:120]!r} belongs to {name[:100]!r}, which {_why_not(name, modules, spec)}"
            )
        found.setdefault(module, {})[_KINDS[match["kind"]]] = tensor
    return found


def _why_not(name: str, modules: Mapping[str, _Module], spec: ModelSpec) -> str:
    """What a module is that adapters cannot change."""
    joined = {matrix.name for matrix in joined_experts(spec)}
    if joined and (name in joined or spec.prefix + name in joined or ".experts." in f"{name}."):
        return (
            "is a part of experts that the model stores as one tensor for all of a layer; quire adds to experts with "
            "tensors of their own. Train the adapter without experts, or merge it into the model."
        )
    return f"is no matrix of {spec.architecture} that adapters can change.{did_you_mean(name, modules)}"


def _is_copy(tensor: TensorSpan, spec: ModelSpec) -> bool:
    """Whether it is the model's own embedding or head, which peft saves along with adapters of these."""
    match = _COPY.fullmatch(tensor.name.removeprefix(_PREFIX))
    shapes = [(matrix.rows, matrix.columns) for matrix in (spec.embedding.words, spec.head) if matrix is not None]
    names = [spec.embedding.words.name, head_name(spec)]
    return match is not None and match["module"] in names and tensor.shape in shapes


def _known_name(given: str, width: int, modules: Mapping[str, _Module], spec: ModelSpec) -> str | None:
    bare = given.removeprefix(_PREFIX)
    older = bare.replace(".mlp.", ".block_sparse_moe.")  # what checkpoints of Mixtral call it
    stack = bare
    while stack.endswith(".base_layer"):  # peft nests where it adapts several tensors of one module
        stack = stack.removesuffix(".base_layer")
    moved = moved_name(spec, bare)  # of a model that sees or hears, what it reads with has names of its own
    names = (bare, spec.prefix + bare, moved, older, f"{stack}#{width}", f"{spec.prefix}{stack}#{width}")
    return next((name for name in names if name in modules), None)


def _placed(
    name: str,
    tensors: Mapping[Kind, TensorSpan],
    modules: Mapping[str, _Module],
    settings: AdapterSettings,
    limits: AdapterLimits,
    file: Path,
) -> Placed:
    module = modules[name]
    matrix, spelled = module.matrix, name.partition("#")[0]
    for kind, letter in (("down", "A"), ("up", "B")):
        if kind not in tensors:
            other = next(iter(tensors.values()))
            raise CheckpointError(f"{file}: {spelled} has {other.name!r} but no lora_{letter}; the file is incomplete.")
    if matrix.target not in limits.targets:
        raise CheckpointError(
            f"{file}: {spelled} belongs to the model's {matrix.target}, for which no room is kept; start with "
            f"--lora-targets {','.join(sorted({*limits.targets, matrix.target}))}."
        )
    down, up, magnitude = tensors["down"], tensors["up"], tensors.get("magnitude")
    stacked = matrix.experts if module.expert is None else 1
    rows = sum(matrix.parts[part].whole_rows for part in module.parts)
    width = down.shape[0] if len(down.shape) == 2 else 0
    rank = width // stacked
    _check_shape(down, (max(rank, 1) * stacked, matrix.whole_columns), file)
    _check_shape(up, (rows, width), file)
    if rank > limits.max_rank:
        raise CheckpointError(
            f"{file}: {down.name!r} has rank {rank}, and the server takes up to {limits.max_rank}; raise "
            "--max-lora-rank."
        )
    told = spelled if module.expert is not None else f"{spelled}.{_stacked_parameter(matrix)}"
    if settings.rank_of(told) != rank:
        raise CheckpointError(
            f"{file}: {down.name!r} has rank {rank}, but {CONFIG} gives {told} rank {settings.rank_of(told)}."
        )
    if settings.is_dora != (magnitude is not None):
        lacks = "lacks its magnitudes (lora_magnitude_vector)"
        raise CheckpointError(
            f"{file}: {spelled} {lacks if settings.is_dora else 'has magnitudes, but use_dora is false'}."
        )
    if magnitude is not None:
        if matrix.target in (EMBEDDING, EXPERTS):
            raise CheckpointError(
                f"{file}: {magnitude.name!r} is DoRA of the model's {matrix.target}, which quire does not add."
            )
        _check_shape(magnitude, (rows,), file)
    return Placed(matrix, module.parts, module.expert, rank, settings.scale_of(told, rank), down, up, magnitude)


def _stacked_parameter(matrix: AdaptedMatrix) -> str:
    """What transformers calls the matrices of all experts of a layer."""
    return "gate_up_proj" if len(matrix.parts) > 1 else "down_proj"


def _check_shape(tensor: TensorSpan, shape: tuple[int, ...], file: Path) -> None:
    given = tuple(size for size in tensor.shape if size != 1 or len(tensor.shape) <= len(shape))
    if shape not in (tensor.shape, given):
        raise CheckpointError(
            f"{file}: {tensor.name!r} has shape {list(tensor.shape)}, but the model needs {list(shape)}; "
            "the adapter is of another model."
        )
    if tensor.dtype not in _FLOATS:
        raise CheckpointError(f"{file}: {tensor.name!r} is {tensor.dtype}; an adapter is float32, float16 or bfloat16.")
