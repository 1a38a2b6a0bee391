"""compressed-tensors: the scheme of each weight, its tensors, and the quantization_config that says so."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from quire.core.errors import CheckpointError, ConfigError
from quire.models.loading.quantization.modules import targets
from quire.quantize.grid import FP8, INT4, INT4_UNSIGNED, INT8, Grid, Scaling
from quire.quantize.options import SMALLEST_GROUP, USUAL_GROUPS, WHOLE_ROWS, QuantizeOptions
from quire.quantize.output_head import quantizes_head
from quire.spec.experts import ExpertsSpec
from quire.spec.layout import Transposed
from quire.spec.matrix import MatrixSpec
from quire.spec.model import ModelSpec
from quire.spec.quantization import WeightScheme

_WORD_CODES = 8
"""Codes of 4 bits in a word of 32."""
_SIGNED = 8
"""What codes of 4 bits are stored plus."""


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """What of a model is quantized, and how."""

    spec: ModelSpec
    """Of the model as it is written."""
    schemes: Mapping[str, WeightScheme]
    """By the names of parts of matrices; parts that are left out stay plain."""
    grid: Grid | None
    config: dict[str, Any] | None
    """The quantization_config; None where nothing is quantized."""


def plan_folder(spec: ModelSpec, options: QuantizeOptions) -> FolderPlan:
    """Every matrix of a layer, and the output head, that is not ignored; but for routers, whose choices a rounded
    weight would change, and what makes keys and values of latents, which is taken apart."""
    if options.scheme not in _FORMATS:
        return FolderPlan(spec, {}, None, None)
    ignored = targets(options.ignore, "--ignore")
    head = spec.head if quantizes_head(options) else None
    routers = {part.name for matrix in _routers(spec) for part in matrix.parts}
    parts = {
        part.name: (part, matrix.columns)
        for matrix in spec.matrices()
        if (matrix.layer is not None or matrix is head) and not matrix.is_taken_apart
        for part in matrix.parts
        if part.name not in routers and not ignored.match(part.name)
    }
    if not parts:
        raise ConfigError(f"--ignore is {' '.join(options.ignore)}, which leaves nothing to quantize; ignore less.")
    turned = next((name for name, (part, _) in parts.items() if isinstance(part.layout, Transposed)), None)
    if turned is not None:
        raise CheckpointError(
            f"{turned} is stored transposed, as {spec.architecture} does, and compressed-tensors has no form for it; "
            "take a GGUF scheme such as q4_k_m."
        )
    stack = next((matrix for matrix in spec.matrices() if matrix.experts and len(matrix.parts) % matrix.experts), None)
    if stack is not None:
        raise CheckpointError(
            f"{stack.name} holds all experts of a layer of {spec.architecture} in one tensor, and compressed-tensors "
            "has no form for it; --quantization fp8 or int8 quantizes the model while it is loaded."
        )
    group = _group(options, {name: columns for name, (_, columns) in parts.items()})
    scheme, grid = _scheme(options, group)
    return FolderPlan(spec, dict.fromkeys(parts, scheme), grid, _config(spec, options, group, parts))


def _routers(spec: ModelSpec) -> Iterator[MatrixSpec]:
    for mlp in (layer.mlp for layer in spec.layers):
        if isinstance(mlp, ExpertsSpec):
            yield mlp.router
            if mlp.shared_gate is not None:
                yield mlp.shared_gate


def stored(scheme: WeightScheme, codes: Tensor, scaling: Scaling, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of one weight by their endings; codes are float [rows, columns]."""
    scales = scaling.scales.to(dtype)
    if scheme.method == "fp8":
        return {"weight": codes.to(torch.float8_e4m3fn), "weight_scale": scales}
    if scheme.method == "int8":
        return {"weight": codes.to(torch.int8), "weight_scale": scales}
    tensors = {
        "weight_packed": _packed(codes if scheme.has_zeros else codes + _SIGNED),
        "weight_scale": scales,
        "weight_shape": torch.tensor(codes.shape),
    }
    if scheme.has_zeros:
        tensors["weight_zero_point"] = _packed(scaling.zeros.t()).t()
    return tensors


def _packed(codes: Tensor) -> Tensor:
    """Unsigned codes of 4 bits [rows, columns] to int32 words along a row, the lowest bits first."""
    padded = functional.pad(codes.to(torch.uint8), (0, -codes.shape[1] % _WORD_CODES))
    return (padded[:, 0::2] | padded[:, 1::2] << 4).contiguous().view(torch.int32)


_FORMATS = {"fp8": "float-quantized", "int8": "int-quantized", "int4": "pack-quantized"}


def _group(options: QuantizeOptions, columns: Mapping[str, int]) -> int | None:
    """Columns that share a scale; None: all of a row."""
    if options.scheme != "int4" or options.group_size == WHOLE_ROWS:
        return None
    asked = options.group_size
    fits = [size for size in USUAL_GROUPS if all(count % size == 0 for count in columns.values())]
    if asked is None:
        if not fits:
            name, count = next((name, count) for name, count in columns.items() if count % USUAL_GROUPS[-1])
            raise ConfigError(
                f"{name} has {count} columns, which none of {', '.join(map(str, USUAL_GROUPS))} divides; give "
                f"--group-size a multiple of {SMALLEST_GROUP} that does, or {WHOLE_ROWS} for whole rows."
            )
        return fits[0]
    wrong = next(((name, count) for name, count in columns.items() if count % asked), None)
    if wrong is not None:
        usual = f"{', '.join(map(str, fits))} or " if fits else ""
        raise ConfigError(
            f"--group-size {asked} does not divide the {wrong[1]} columns of {wrong[0]}; give {usual}{WHOLE_ROWS} for "
            "whole rows."
        )
    return asked


def _scheme(options: QuantizeOptions, group: int | None) -> tuple[WeightScheme, Grid]:
    if options.scheme == "fp8":
        return WeightScheme("fp8", "fp8_e4m3", activations="a scale each token"), FP8
    if options.scheme == "int8":
        lacks = frozenset({"weight_zero_point"})
        return WeightScheme("int8", "int8", activations="a scale each token", lacks=lacks), INT8
    asymmetric = not options.symmetric
    lacks = frozenset({"weight_g_idx"})
    scheme = WeightScheme("packed", "int4", group, has_zeros=asymmetric, lacks=lacks)
    return scheme, INT4_UNSIGNED if asymmetric else INT4


def _config(spec: ModelSpec, options: QuantizeOptions, group: int | None, parts: Mapping[str, Any]) -> dict[str, Any]:
    bits, kind = (4 if options.scheme == "int4" else 8), ("float" if options.scheme == "fp8" else "int")
    weights: dict[str, Any] = {"num_bits": bits, "type": kind, "symmetric": options.symmetric, "dynamic": False}
    weights |= {"strategy": "channel"} if group is None else {"strategy": "group", "group_size": group}
    if options.method == "gptq" and options.act_order and group is not None:
        weights["actorder"] = "weight"  # columns were chosen by importance; groups are where they would be without
    inputs = {"num_bits": 8, "type": kind, "symmetric": True, "dynamic": True, "strategy": "token"}
    return {
        "quant_method": "compressed-tensors",
        "format": _FORMATS[options.scheme],
        "quantization_status": "compressed",
        "ignore": _ignored(spec, options, parts),
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": None if options.scheme == "int4" else inputs,
                "output_activations": None,
            }
        },
    }


def _ignored(spec: ModelSpec, options: QuantizeOptions, parts: Mapping[str, Any]) -> list[str]:
    """What is asked for, and every other Linear that stays plain, whoever reads the folder."""
    plain = [part.name for matrix in spec.matrices() for part in matrix.parts if part.name not in parts]
    tables = (spec.embedding.words, spec.embedding.positions, spec.embedding.types)
    looked_up = {table.name for table in tables if table is not None}
    others = ["re:.*pooler.*"] if spec.is_encoder else []  # a Linear of transformers' encoders that quire leaves out
    return list(dict.fromkeys([*options.ignore, *(name for name in plain if name not in looked_up), *others]))
