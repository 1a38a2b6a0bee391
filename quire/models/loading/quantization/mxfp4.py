"""The quantization_config of gpt-oss: its experts are MXFP4, all else is plain."""

from quire.models.loading.hf_fields import HFFields
from quire.models.loading.quantization.fields import SchemeOf
from quire.spec.quantization import WeightScheme

_GROUP = 32
_SCHEME = WeightScheme("mxfp4", "fp4", _GROUP)


def read_mxfp4(fields: HFFields) -> SchemeOf:
    def scheme_of(module: str, in_layer: bool) -> WeightScheme | None:
        return _SCHEME if in_layer and ".experts." in module else None

    return scheme_of
