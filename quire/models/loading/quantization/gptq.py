"""GPTQ's quantization_config."""

from quire.core.quantized import Codes
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.quantization.fields import SchemeOf, group_size, names, one_of, refused
from quire.models.loading.quantization.modules import is_named, pattern
from quire.spec.quantization import WeightScheme

_CODES: dict[int, Codes] = {4: "int4", 8: "int8"}
_FORMATS = ("gptq", "gptq_v2")
_SKIP = "-:"
"""What a rule of GPTQModel begins with that leaves modules plain."""


def read_gptq(fields: HFFields) -> SchemeOf:
    bits = one_of(fields, "bits", tuple(_CODES))
    first_format = one_of(fields, "checkpoint_format", _FORMATS, "gptq") == "gptq"
    scheme = WeightScheme(
        "gptq",
        _CODES[bits],
        group_size(fields, 128),
        has_zeros=not fields.flag("sym", True),
        act_order=fields.flag("desc_act", False),
        zeros_less_one=first_format,
    )
    plain = names(fields, "modules_to_not_convert")
    rules = fields.values.get("dynamic") or {}
    other = next((rule for rule in rules if not str(rule).startswith(_SKIP)), None)
    if other is not None:
        raise refused(fields.source, f"rules for single modules (dynamic: {str(other)[:60]!r})", "rules that skip (-:)")
    skipped = [pattern(str(rule).removeprefix(_SKIP), fields.source) for rule in rules]
    with_head = fields.flag("lm_head", False)

    def scheme_of(module: str, in_layer: bool) -> WeightScheme | None:
        is_plain = is_named(module, plain) or any(rule.match(module) for rule in skipped)
        return None if is_plain or not (in_layer or with_head) else scheme

    return scheme_of
