"""The one table of which implementation of an op runs on which kind of device.

The reference is the definition and runs everywhere; a faster one is an entry beside it. Implementations are
imported when they are first needed, so an absent backend costs nothing.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from quire.ops.cpu.tape import NotRecordable

_REFERENCE = "quire.ops.reference"
_RECORD = "quire.ops.cpu.record"
_CPU = "quire.ops.cpu"
_TRITON = "quire.ops.triton"
_PACKED = "quire.ops.cpu.packed_linear"

TABLE: dict[str, dict[str, str]] = {
    "rms_norm": {
        "reference": f"{_REFERENCE}.rms_norm:rms_norm",
        "cuda": f"{_TRITON}.rms_norm:rms_norm",
        "tape": f"{_RECORD}:rms_norm",
    },
    "add_rms_norm": {
        "reference": f"{_REFERENCE}.add_rms_norm:add_rms_norm",
        "cuda": f"{_TRITON}.add_rms_norm:add_rms_norm",
        "tape": f"{_RECORD}:add_rms_norm",
    },
    "layer_norm": {
        "reference": f"{_REFERENCE}.layer_norm:layer_norm",
        "cuda": f"{_TRITON}.layer_norm:layer_norm",
        "tape": f"{_RECORD}:layer_norm",
    },
    "add_layer_norm": {
        "reference": f"{_REFERENCE}.add_layer_norm:add_layer_norm",
        "cuda": f"{_TRITON}.add_layer_norm:add_layer_norm",
        "tape": f"{_RECORD}:add_layer_norm",
    },
    "rotary": {"reference": f"{_REFERENCE}.rotary:rotary", "tape": f"{_RECORD}:rotary"},
    "activate": {"reference": f"{_REFERENCE}.activate:activate", "tape": f"{_RECORD}:activate"},
    "gated_activation": {
        "reference": f"{_REFERENCE}.gated_activation:gated_activation",
        "cuda": f"{_TRITON}.gated_activation:gated_activation",
        "tape": f"{_RECORD}:gated_activation",
    },
    "write_kv": {"reference": f"{_REFERENCE}.write_kv:write_kv", "tape": f"{_RECORD}:write_kv"},
    "prepare_heads": {
        "reference": f"{_REFERENCE}.prepare_heads:prepare_heads",
        "cuda": f"{_TRITON}.prepare_heads:prepare_heads",
        "tape": f"{_RECORD}:prepare_heads",
    },
    "paged_attention": {
        "reference": f"{_REFERENCE}.paged_attention:paged_attention",
        "cuda": f"{_TRITON}.paged_attention:paged_attention",
        "tape": f"{_RECORD}:paged_attention",
    },
    "shared_prefix_attention": {
        "reference": f"{_REFERENCE}.shared_prefix_attention:shared_prefix_attention",
        "cuda": f"{_TRITON}.shared_prefix_attention:shared_prefix_attention",
    },
    "packed_attention": {"reference": f"{_REFERENCE}.packed_attention:packed_attention"},
    "rope_angles": {
        "reference": f"{_REFERENCE}.rope_angles:rope_angles",
        "cuda": f"{_TRITON}.rope_angles:rope_angles",
        "cpu": f"{_CPU}.rope_angles:rope_angles",
    },
    "step_inputs": {"reference": f"{_REFERENCE}.step_inputs:step_inputs", "cpu": f"{_CPU}.step_inputs:step_inputs"},
    "decode_inputs": {
        "reference": f"{_REFERENCE}.decode_inputs:decode_inputs",
        "cuda": f"{_TRITON}.decode_inputs:decode_inputs",
    },
    "finish_step": {
        "reference": f"{_REFERENCE}.finish_step:finish_step",
        "cuda": f"{_TRITON}.finish_step:finish_step",
        "cpu": f"{_CPU}.finish_step:finish_step",
    },
    "sample_tokens": {
        "reference": f"{_REFERENCE}.sample_tokens:sample_tokens",
        "cuda": f"{_TRITON}.sample_tokens:sample_tokens",
        "cpu": f"{_CPU}.sample_tokens:sample_tokens",
    },
    "likeliest": {
        "reference": f"{_REFERENCE}.likeliest:likeliest",
        "cuda": f"{_TRITON}.likeliest:likeliest",
        "cpu": f"{_CPU}.likeliest:likeliest",
    },
    "apply_token_bitmask": {
        "reference": f"{_REFERENCE}.apply_token_bitmask:apply_token_bitmask",
        "cuda": f"{_TRITON}.apply_token_bitmask:apply_token_bitmask",
        "cpu": f"{_CPU}.apply_token_bitmask:apply_token_bitmask",
    },
    "linear": {"reference": f"{_REFERENCE}.linear:linear", "cuda": f"{_TRITON}.few_rows_linear:linear"},
    # its definition is dequantize and torch's product; there is no other way to compute on packed layouts
    "packed_linear": {"reference": f"{_PACKED}:packed_linear", "tape": f"{_PACKED}:record_packed_linear"},
}
"""By op, then by device type (`cuda`, `cpu`), `tape` for values that are being recorded, or `reference`."""


@cache
def implementation(op: str, device_type: str) -> Callable[..., Any]:
    """The implementation of `op` for a device type: its own, else the reference, which cannot be recorded."""
    places = TABLE[op]
    if device_type == "tape" and device_type not in places:
        raise NotRecordable(f"{op}, which the core has no operation for")
    module, _, name = places.get(device_type, places["reference"]).partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
