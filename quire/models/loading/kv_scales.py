"""What a checkpoint says keys and values are to be divided by before they are stored in fp8. Torch-free."""

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quire.core.errors import CheckpointError
from quire.models.loading.spans import TensorSpan

KVScale = tuple[float, float]
"""Of a layer's keys, and of its values."""
_NAMES = re.compile(
    r"(?:.*\.)?layers\.(\d{1,6})\.(?:self_attn|attention)\."
    r"(?:(?:attn\.|[kv]_proj\.|qkv_proj\.)?(?P<scale>k|v|kv)_scale|(?P<output>[kv])_proj\.output_scale)"
)
"""As compressed-tensors, vLLM, ModelOpt and AutoFP8 spell them."""
_KINDS = {"float32": "<f", "float16": "<e", "bfloat16": "<H"}


@dataclass(frozen=True, slots=True)
class KVScaleName:
    """Which scale a tensor holds."""

    layer: int
    of: str
    """`k`, `v`, or `kv` for both."""


def kv_scale_name(name: str) -> KVScaleName | None:
    """What a tensor's name says; None for a tensor that is no scale of KV."""
    found = _NAMES.fullmatch(name)
    return None if found is None else KVScaleName(int(found[1]), found["scale"] or found["output"])


def read_kv_scales(
    scales: Mapping[KVScaleName, TensorSpan], files: Mapping[str, Path], num_layers: int
) -> list[KVScale] | None:
    """By layer, 1 for layers without any; None where no layer has any."""
    if not scales:
        return None
    values = {name: _read(span, files[span.name]) for name, span in scales.items()}
    return [_of_layer(layer, values) for layer in range(num_layers)]


def _of_layer(layer: int, values: Mapping[KVScaleName, float]) -> KVScale:
    both = values.get(KVScaleName(layer, "kv"))
    key, value = (values.get(KVScaleName(layer, of), both) for of in "kv")
    if (key is None) != (value is None):
        alone = "values" if key is None else "keys"
        raise CheckpointError(
            f"layer {layer} of the checkpoint has a scale for its {alone} alone, but fp8 KV takes both or none; use "
            "--kv-cache-dtype auto."
        )
    return (1.0, 1.0) if key is None or value is None else (key, value)


def _read(span: TensorSpan, path: Path) -> float:
    where = f"{path}: tensor {span.name[:80]!r}"
    advice = "use --kv-cache-dtype auto, which needs no scales."
    if math.prod(span.shape) != 1 or span.dtype not in _KINDS:
        raise CheckpointError(
            f"{where} is {span.dtype} of shape {list(span.shape)}, but a scale of KV is one number in float32, float16 "
            f"or bfloat16; {advice}"
        )
    with path.open("rb") as file:
        file.seek(span.start)
        (number,) = struct.unpack(_KINDS[span.dtype], file.read(span.num_bytes))
    scale: float = struct.unpack("<f", struct.pack("<I", number << 16))[0] if span.dtype == "bfloat16" else number
    if not (math.isfinite(scale) and scale > 0):
        raise CheckpointError(f"{where} is {scale:g}, but a scale of KV is a number above 0; {advice}")
    return scale
