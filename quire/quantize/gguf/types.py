"""Which ggml type each tensor of a GGUF file gets, as llama.cpp chooses them."""

from quire.core.ggml_types import ggml_type_named
from quire.spec.model import ModelSpec
from quire.spec.tensor import TensorSpec

_BASE = {"q4_0": "Q4_0", "q8_0": "Q8_0", "q4_k_m": "Q4_K", "q5_k_m": "Q5_K", "q6_k": "Q6_K"}
FILE_TYPES = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18}
"""`general.file_type` of each scheme."""
_PLAIN_TABLES = ("positions", "types")
_WIDER = {"q4_k_m": "Q5_K", "q5_k_m": "Q6_K"}
"""Of matrices that hold queries, keys and values in one."""
_NARROW_ROWS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""Where a row is no multiple of 256."""


def type_of(tensor: TensorSpec, scheme: str, spec: ModelSpec) -> str:
    """Torch's name of a dtype, or ggml's of a packed type."""
    if tensor.use != "matrix" or tensor.role in _PLAIN_TABLES:
        return "float32"
    wanted = _wanted(tensor, scheme, spec)
    columns = tensor.shape[1]
    if columns % ggml_type_named(wanted).block:
        wanted = _NARROW_ROWS.get(wanted, wanted)
    return "float16" if columns % ggml_type_named(wanted).block else wanted


def _wanted(tensor: TensorSpec, scheme: str, spec: ModelSpec) -> str:
    base = _BASE[scheme]
    if tensor.role == "head" or (tensor.role == "words" and spec.head is None):
        return "Q8_0" if base == "Q8_0" else "Q6_K"
    if scheme not in _WIDER:
        return base
    if tensor.role == "qkv":
        return _WIDER[scheme]
    return "Q6_K" if tensor.role in ("v", "down") and _gets_more(tensor.layer, spec.num_layers) else base


def _gets_more(layer: int | None, count: int) -> bool:
    """The first and the last eighth of the layers, and every third between."""
    if layer is None:
        return False
    eighth = count // 8
    return layer < eighth or layer >= 7 * count // 8 or (layer - eighth) % 3 == 2
