"""compressed-tensors' quantization_config: groups of modules, each with its own scheme."""

import re
from dataclasses import dataclass

from quire.core.errors import CheckpointError
from quire.core.quantized import Activations, Codes
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.quantization.fields import SchemeOf, group_size, names, one_of, refused
from quire.models.loading.quantization.fp8 import block_shape
from quire.models.loading.quantization.modules import LINEAR, targets
from quire.spec.quantization import Method, WeightScheme

_FORMATS = ("float-quantized", "int-quantized", "naive-quantized", "pack-quantized")
_MIXED = "mixed-precision"
_STRATEGIES = ("tensor", "channel", "group", "block")
_NONE_OF = ("sparsity_config", "transform_config")


@dataclass(frozen=True, slots=True)
class _Group:
    modules: re.Pattern[str]
    is_for_all: bool
    scheme: WeightScheme


def read_compressed_tensors(fields: HFFields) -> SchemeOf:
    for name in _NONE_OF:
        _refuse_unless_empty(fields, name)
    one_of(fields, "quantization_status", ("compressed", "frozen"), "compressed")
    given = fields.values.get("config_groups")
    if not isinstance(given, dict) or not given:
        raise CheckpointError(f"{fields.source}: quantization_config has no config_groups; download config.json again.")
    top = one_of(fields, "format", (*_FORMATS, _MIXED), _MIXED)
    groups = [_group(fields, name, top) for name in given]
    ignored = targets(names(fields, "ignore"), fields.source)

    def scheme_of(module: str, in_layer: bool) -> WeightScheme | None:
        if ignored.match(module):
            return None
        named = [group.scheme for group in groups if group.modules.match(module)]
        return next(iter((*named, *(group.scheme for group in groups if group.is_for_all))), None)

    return scheme_of


def _refuse_unless_empty(fields: HFFields, name: str) -> None:
    inner = fields.nested(name)
    kind = inner.values.get("format", "dense") if name == "sparsity_config" else "one"
    if inner.values and kind != "dense":
        raise refused(fields.source, f"{name} {str(inner.values)[:60]}", "weights without it")


def _group(fields: HFFields, name: str, top: str) -> _Group:
    group = fields.nested("config_groups").nested(name)
    weights, inputs = group.nested("weights"), group.nested("input_activations")
    group = HFFields({"format": top, **group.values}, fields.source)
    form = one_of(group, "format", _FORMATS)
    if group.has("output_activations"):
        raise refused(fields.source, "output_activations", "schemes of weights and inputs")
    if not weights.values:
        raise refused(fields.source, f"the group {name[:40]!r} without weights", "schemes of weights and inputs")
    named = names(group, "targets")
    modules = targets(named, fields.source)
    return _Group(modules, LINEAR in named, _scheme(_at(weights, fields), _at(inputs, fields), form))


def _at(nested: HFFields, fields: HFFields) -> HFFields:
    return HFFields(nested.values, fields.source)


def _scheme(weights: HFFields, inputs: HFFields, form: str) -> WeightScheme:
    kind = one_of(weights, "type", ("int", "float"), "int")
    packed = form == "pack-quantized"
    bits = one_of(weights, "num_bits", (8,) if kind == "float" or not packed else (4, 8), 8)
    if kind == "float" and packed:
        raise refused(weights.source, "pack-quantized floats", "whole numbers of 4 and 8 bits there")
    codes: Codes = "fp8_e4m3" if kind == "float" else "int4" if bits == 4 else "int8"
    method: Method = "packed" if packed else "fp8" if kind == "float" else "int8"
    group, rows = _covered(weights)
    if packed and rows != 1:
        raise refused(weights.source, "one scale for several packed rows", "strategies channel and group there")
    has_zeros = not weights.flag("symmetric", True)
    act_order = weights.values.get("actorder") in ("group", "dynamic", True)
    activations = _activations(inputs, weights, kind, group)
    return WeightScheme(method, codes, group, rows, has_zeros, activations, act_order)


def _covered(weights: HFFields) -> tuple[int | None, int | None]:
    """Columns and rows that share a scale."""
    size = weights.values.get("group_size")
    usual = "tensor" if size is None else "channel" if size == -1 else "group"
    match one_of(weights, "strategy", _STRATEGIES, usual):
        case "tensor":
            return None, None
        case "channel":
            return None, 1
        case "group":
            return group_size(weights), 1
        case _:
            rows, columns = block_shape(weights.values.get("block_structure"), "block_structure", weights.source)
            return columns, rows


def _activations(inputs: HFFields, weights: HFFields, kind: str, group: int | None) -> Activations:
    if not inputs.values:
        return "as they are"
    source = inputs.source
    if inputs.values.get("type", "int") != kind or inputs.values.get("num_bits", 8) != 8:
        given = f"{inputs.values.get('num_bits')}-bit {inputs.values.get('type')} activations"
        raise refused(source, given, f"8-bit {kind} ones beside {kind} weights")
    if not inputs.flag("symmetric", True):
        raise refused(source, "activations with a zero point", "symmetric ones")
    strategy = one_of(inputs, "strategy", ("tensor", "token", "group"), "tensor")
    if strategy == "group":
        if inputs.values.get("group_size") != group or not inputs.values.get("dynamic"):
            raise refused(source, "groups of activations other than those of weights", "dynamic ones of the same size")
        return "a scale each group"
    if one_of(inputs, "dynamic", (False, True), False):
        return "a scale each token"
    if strategy == "token":
        raise refused(source, "static scales of tokens", "dynamic ones, and one static scale of a tensor")
    return "one scale"
