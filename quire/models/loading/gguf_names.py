"""What tensors of GGUF files are called in Hugging Face's, and what was done to them when they were converted."""

import re
from dataclasses import dataclass, field
from typing import Literal

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_rope import FACTOR_TENSORS

Change = Literal["none", "query_rows", "key_rows", "plus_one", "transposed"]
"""What the converter did: nothing; turned halves of each head into pairs, for queries or keys; added 1; transposed."""

_TENSOR = re.compile(r"(?:blk\.(0|[1-9][0-9]{0,4})\.)?([a-z0-9_]+)\.(weight|bias)")


@dataclass(frozen=True, slots=True)
class Origin:
    """The tensor of a Hugging Face checkpoint that a GGUF tensor was made from."""

    name: str
    change: Change = "none"


@dataclass(frozen=True, slots=True)
class _Family:
    """Names without `.weight` and `.bias`: tensors of the whole model, those of layer N, and what became of some."""

    whole: dict[str, str]
    layer: dict[str, str]
    prefix: str = "model.layers"
    weight_changes: dict[str, Change] = field(default_factory=dict)
    """By GGUF name, of weights."""
    bias_changes: dict[str, Change] = field(default_factory=dict)


_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_SANDWICH = {
    **_LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_PHI3_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
_GPT2_WHOLE = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}
_GPT2_LAYER = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}

_ROWS: dict[str, Change] = {"attn_q": "query_rows", "attn_k": "key_rows"}
_GEMMA_NORMS: dict[str, Change] = dict.fromkeys(
    ("output_norm", "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", *_HEAD_NORMS), "plus_one"
)
_GPT2_MATRICES: dict[str, Change] = dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), "transposed")

_FAMILIES: dict[str, _Family] = {
    "llama": _Family(_WHOLE, _LAYER, weight_changes=_ROWS, bias_changes=_ROWS),
    "qwen2": _Family(_WHOLE, _LAYER),
    "qwen3": _Family(_WHOLE, {**_LAYER, **_HEAD_NORMS}),
    "gemma2": _Family(_WHOLE, _SANDWICH, weight_changes=_GEMMA_NORMS),
    "gemma3": _Family(_WHOLE, {**_SANDWICH, **_HEAD_NORMS}, weight_changes=_GEMMA_NORMS),
    "phi3": _Family(_WHOLE, _PHI3_LAYER),
    "gpt2": _Family(_GPT2_WHOLE, _GPT2_LAYER, "transformer.h", weight_changes=_GPT2_MATRICES),
}


def origin(architecture: str, name: str, num_layers: int, source: str) -> Origin | None:
    """What the GGUF tensor `name` was; None for tensors that are part of the config. `source` is for errors."""
    family = _FAMILIES.get(architecture)
    if family is None:
        raise CheckpointError(
            f"{source} holds a model of architecture {architecture!r}; of GGUF quire runs {', '.join(_FAMILIES)}."
        )
    if name in FACTOR_TENSORS:
        return None
    match = _TENSOR.fullmatch(name)
    layer, stem, kind = match.groups() if match else (None, "", "")
    found = (family.whole if layer is None else family.layer).get(stem)
    if found is None or (layer is not None and int(layer) >= num_layers):
        raise CheckpointError(
            f"{source}: tensor {name[:80]!r} has no place in a {architecture} model of {num_layers} layers; "
            "the file is damaged, or of a variant that quire does not run."
        )
    changes = family.weight_changes if kind == "weight" else family.bias_changes
    prefix = "" if layer is None else f"{family.prefix}.{layer}."
    return Origin(f"{prefix}{found}.{kind}", changes.get(stem, "none"))
