"""The quantization_config of the older fp8 style, per tensor or per block (DeepSeek's)."""

from quire.core.quantized import Activations, Codes
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.json_object import is_count
from quire.models.loading.quantization.fields import SchemeOf, names, one_of, refused
from quire.models.loading.quantization.modules import is_named
from quire.spec.quantization import WeightScheme

_CODES: dict[str, Codes] = {"e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2"}


def read_fp8(fields: HFFields) -> SchemeOf:
    codes = _CODES[one_of(fields, "fmt", tuple(_CODES), "e4m3")]
    is_static = one_of(fields, "activation_scheme", ("dynamic", "static"), "dynamic") == "static"
    block = fields.values.get("weight_block_size")
    activations: Activations = "one scale" if is_static else "a scale each token"
    if block is None:
        scheme = WeightScheme("fp8", codes, block_rows=None, activations=activations)
    else:
        rows, columns = block_shape(block, "weight_block_size", fields.source)
        if is_static:
            raise refused(fields.source, "static activations with blocks", "dynamic ones")
        scheme = WeightScheme("fp8", codes, columns, rows, activations="a scale each group")
    plain = names(fields, "ignored_layers", "modules_to_not_convert")

    def scheme_of(module: str, in_layer: bool) -> WeightScheme | None:
        return scheme if in_layer and not is_named(module, plain) else None

    return scheme_of


def block_shape(given: object, name: str, source: str) -> tuple[int, int]:
    """Rows and columns that share a scale."""
    if isinstance(given, list) and len(given) == 2 and all(is_count(size) and size > 0 for size in given):
        return given[0], given[1]
    raise refused(source, f"{name} {str(given)[:60]}", "two sizes such as [128, 128]")
