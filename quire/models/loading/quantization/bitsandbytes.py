"""bitsandbytes' quantization_config: NF4, and the 8 bits of LLM.int8()."""

from quire.models.loading.hf_fields import HFFields
from quire.models.loading.quantization.fields import SchemeOf, names, one_of, refused
from quire.models.loading.quantization.modules import is_named
from quire.spec.quantization import WeightScheme

_BLOCK = 64
"""Weights that share a scale, which run on over the ends of rows."""


def read_bitsandbytes(fields: HFFields) -> SchemeOf:
    if fields.flag("load_in_8bit", False):
        scheme = WeightScheme("llm_int8", "int8")
    elif fields.flag("load_in_4bit", False):
        one_of(fields, "bnb_4bit_quant_type", ("nf4",), "fp4")
        one_of(fields, "bnb_4bit_quant_storage", ("uint8",), "uint8")
        scheme = WeightScheme("nf4", "nf4", _BLOCK)
    else:
        raise refused(fields.source, "neither load_in_4bit nor load_in_8bit", "both")
    plain = names(fields, "llm_int8_skip_modules")

    def scheme_of(module: str, in_layer: bool) -> WeightScheme | None:
        return scheme if in_layer and not is_named(module, plain) else None

    return scheme_of
