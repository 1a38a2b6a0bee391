"""The one table of which implementation of an op runs on which kind of device.

The reference is the definition and runs everywhere; a faster one stands in a file of the same name in the folder of its
device. Implementations are imported when they are first needed, so an absent backend costs nothing.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from quire.ops.cpu.tape import NotRecordable

_FILES = {
    "reference": "quire.ops.reference.{}",
    "cuda": "quire.ops.triton.{}",
    "cpu": "quire.ops.cpu.{}",
    "tape": "quire.ops.cpu.record",
}
"""By kind of device, `tape` for values that are being recorded: the file of an op, `{}` being its name."""

TABLE: dict[str, tuple[str, ...]] = {
    "rms_norm": ("cuda", "tape"),
    "add_rms_norm": ("cuda", "tape"),
    "layer_norm": ("cuda", "tape"),
    "add_layer_norm": ("cuda", "tape"),
    "rotary": ("tape",),
    "activate": ("tape",),
    "gated_activation": ("cuda", "tape"),
    "write_kv": ("tape",),
    "prepare_heads": ("cuda", "tape"),
    "paged_attention": ("cuda", "tape"),
    "shared_prefix_attention": ("cuda",),
    "packed_attention": ("cuda", "cpu"),
    "attend_lengths": (),
    "cross_attention": ("cuda", "cpu"),
    "prepare_latent": ("cuda", "tape"),
    "latent_attention": ("cuda", "tape"),
    "rope_angles": ("cuda", "cpu"),
    "step_inputs": ("cpu",),
    "decode_inputs": ("cuda",),
    "finish_step": ("cuda", "cpu"),
    "accept_drafts": ("cuda", "cpu"),
    "lookup_drafts": ("cuda", "cpu"),
    "sample_tokens": ("cuda", "cpu"),
    "argmax": ("cuda", "cpu"),
    "adjust_logits": ("cuda", "cpu"),
    "mask_logits": ("cuda", "cpu"),
    "apply_speech_rules": ("cpu",),
    "count_tokens": ("cuda",),
    "token_logprobs": ("cuda", "cpu"),
    "linear": ("cuda",),
    "batch_invariant_linear": ("cuda",),
    "batch_invariant_attention": ("cuda",),
    "packed_linear": ("tape",),
    "quantized_linear": ("cuda",),
    "expand_matrix": ("cuda",),
    "group_adapters": ("cuda",),
    "add_lora": ("cuda", "tape"),
    "embed_lora": ("cuda",),
    "route_tokens": ("cuda", "tape"),
    "experts_mlp": ("cuda", "tape"),
}
"""By op: where it runs in another way than the reference's."""

_ELSEWHERE = {
    ("linear", "cuda"): "quire.ops.triton.skinny_gemm:linear",
    ("packed_attention", "cuda"): "quire.ops.fused_attention:packed_attention",
    ("packed_attention", "cpu"): "quire.ops.fused_attention:packed_attention",
    # what they add to a definition is an order of sums that GPUs keep
    ("batch_invariant_linear", "reference"): "quire.ops.reference.linear:linear",
    ("batch_invariant_attention", "reference"): "quire.ops.reference.paged_attention:paged_attention",
    # its definition is dequantize and torch's product; there is no other way to compute on packed layouts
    ("packed_linear", "reference"): "quire.ops.cpu.packed_linear:packed_linear",
    ("packed_linear", "tape"): "quire.ops.cpu.packed_linear:record_packed_linear",
}
"""Those under other names than the op's."""


@cache
def implementation(op: str, device_type: str) -> Callable[..., Any]:
    """The implementation of `op` for a device type: its own, else the reference, which cannot be recorded."""
    kind = device_type if device_type in TABLE[op] else "reference"
    if device_type == "tape" and kind == "reference":
        raise NotRecordable(f"{op}, which the core has no operation for")
    place = _ELSEWHERE.get((op, kind), f"{_FILES[kind].format(op)}:{op}")
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
