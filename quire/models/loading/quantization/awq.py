"""AWQ's quantization_config."""

from quire.models.loading.hf_fields import HFFields
from quire.models.loading.quantization.fields import SchemeOf, group_size, names, one_of
from quire.models.loading.quantization.modules import is_named
from quire.spec.quantization import WeightScheme


def read_awq(fields: HFFields) -> SchemeOf:
    one_of(fields, "bits" if fields.has("bits") else "w_bit", (4,))
    version = fields.values.get("version")
    if not isinstance(version, str) or version.lower() != "gemm":
        one_of(fields, "version", ("gemm",), "gemm")
    group = group_size(fields if fields.has("group_size") else _older(fields), 128)
    scheme = WeightScheme("awq", "int4", group, has_zeros=fields.flag("zero_point", True))
    plain = names(fields, "modules_to_not_convert")

    def scheme_of(module: str, in_layer: bool) -> WeightScheme | None:
        return scheme if in_layer and not is_named(module, plain) else None

    return scheme_of


def _older(fields: HFFields) -> HFFields:
    """Where the group's size goes by the name that AWQ's own tool gives it."""
    return HFFields({**fields.values, "group_size": fields.values.get("q_group_size")}, fields.source)
