"""Reading the quantization_config of a config.json: which weights are quantized and how. Torch-free.

A plugin adds a format by an entry point of `quire.formats`, called as the config calls it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.dimensions import text_values
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.quantization.awq import read_awq
from quire.models.loading.quantization.bitsandbytes import read_bitsandbytes
from quire.models.loading.quantization.compressed_tensors import read_compressed_tensors
from quire.models.loading.quantization.fields import SchemeOf, refused
from quire.models.loading.quantization.fp8 import read_fp8
from quire.models.loading.quantization.gptq import read_gptq
from quire.models.loading.quantization.mxfp4 import read_mxfp4
from quire.spec.weight_format import format_plugin

METHODS: dict[str, Callable[[HFFields], SchemeOf]] = {
    "compressed-tensors": read_compressed_tensors,
    "fp8": read_fp8,
    "gptq": read_gptq,
    "awq": read_awq,
    "bitsandbytes": read_bitsandbytes,
    "mxfp4": read_mxfp4,
}
_NAMES = ("quantization_config", "compression_config")


def read_quantization(config: Mapping[str, Any], source: str) -> SchemeOf | None:
    """How weights are stored; None where all are plain. Raises for a format that quire does not have."""
    places = [values.get(name) for values in (text_values(config), config) for name in _NAMES]
    given = next((place for place in places if place), None)
    if given is None:
        return None
    if not isinstance(given, dict):
        raise CheckpointError(f"{source}: quantization_config is {str(given)[:40]!r}, but it must be an object.")
    method = given.get("quant_method")
    if method in METHODS:
        return METHODS[method](HFFields(given, source))
    plugin = format_plugin(method) if isinstance(method, str) else None
    if plugin is not None:
        return plugin.schemes(given, source)
    named = repr(str(method)[:60]) if method else "a format without a name"
    raise refused(source, named, ", ".join(METHODS))
