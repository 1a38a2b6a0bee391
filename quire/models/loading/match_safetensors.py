"""Matching .safetensors files, quantized or not, with the spec of their model. Torch-free."""

from collections.abc import Sequence
from dataclasses import replace

from quire.config.dtypes import PLAIN_FLOATS
from quire.models.loading.match import Matched, match
from quire.models.loading.quantization.fields import SchemeOf
from quire.models.loading.quantization.schemes import quantized_parts, without_lacking
from quire.models.loading.spans import TensorSpan
from quire.models.loading.tensor_names import current_name, safetensors_names
from quire.spec.model import ModelSpec


def match_safetensors(spec: ModelSpec, spans: Sequence[TensorSpan], scheme_of: SchemeOf | None, source: str) -> Matched:
    """Every tensor of the spec with its place in the files; without files, only what the config says of them."""
    if scheme_of is None:
        schemes = {}
    else:
        known = {tensor.name for tensor in spec.tensors()}
        plain = {current_name(spec, span.name, known) for span in spans if span.dtype in PLAIN_FLOATS}
        parts = {name.removesuffix(".weight") for name in plain}
        schemes = dict(quantized_parts(spec, scheme_of, parts, source))
    if not spans:
        return Matched(spec, {}, schemes)
    names = safetensors_names(spec, [span.name for span in spans], schemes)
    matched = match(spec, spans, names, source)
    return replace(matched, schemes=without_lacking(spec, schemes, matched.found))
