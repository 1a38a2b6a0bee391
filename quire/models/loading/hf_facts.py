"""From a config.json and the tensors beside it to the facts of a model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from quire.config.dtypes import PLAIN_FLOATS, dtype_bytes
from quire.config.facts import ModelFacts
from quire.core.errors import CheckpointError
from quire.models.loading.hf_config import HFShape, read_hf_config
from quire.models.loading.parameter_count import count_parameters
from quire.models.loading.spans import TensorSpan

_USUAL_DTYPE = "float32"
"""What a config.json without a dtype means."""
_PACKED = ("int32", "uint8", "int8")
"""Dtypes of quantised weights, an element of which may hold several."""


def hf_facts(name: str, config: Mapping[str, Any], tensors: Sequence[TensorSpan], source: str) -> ModelFacts:
    """Facts of the model called `name`; with no tensors, its weights are counted from the config."""
    shape = read_hf_config(config, source)
    if tensors:
        weight_bytes = bytes_by_dtype(tensors)
        dtype = shape.dtype or _most_common_float(weight_bytes)
        num_parameters = _stored_parameters(shape, tensors)
    else:
        dtype = shape.dtype or _USUAL_DTYPE
        num_parameters = _counted_parameters(shape)
        weight_bytes = {dtype: num_parameters * dtype_bytes(dtype)}
    return ModelFacts(
        name=name,
        architecture=shape.architecture,
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        max_position=shape.max_position,
        dtype=dtype,
        weight_bytes=weight_bytes,
        num_parameters=num_parameters,
        layer_windows=shape.windows,
        max_position_source=shape.max_position_source,
        angles_change_at=shape.angles_change_at,
        angles_follow_length=shape.angles_follow_length,
        is_encoder=shape.is_encoder,
    )


def bytes_by_dtype(tensors: Sequence[TensorSpan]) -> dict[str, int]:
    """Bytes of tensors by stored dtype, the largest first."""
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.dtype] += tensor.num_bytes
    return dict(sizes.most_common())


def _most_common_float(weight_bytes: Mapping[str, int]) -> str:
    return next((dtype for dtype in weight_bytes if dtype in PLAIN_FLOATS), _USUAL_DTYPE)


def _counted_parameters(shape: HFShape) -> int:
    if shape.fields.has("quantization_config"):
        raise CheckpointError(
            f"{shape.fields.source} describes quantised weights, whose bytes only their files tell; "
            "add the .safetensors files."
        )
    return count_parameters(shape)


def _stored_parameters(shape: HFShape, tensors: Sequence[TensorSpan]) -> int:
    if any(tensor.dtype in _PACKED for tensor in tensors):
        try:
            return count_parameters(shape)
        except CheckpointError:
            pass  # a family that only its files describe: stored elements are the best figure there is
    return sum(tensor.num_elements for tensor in tensors)
