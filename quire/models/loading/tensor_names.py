"""What the tensors of a spec are called in the files of each format, and what the files do to them. Torch-free."""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

from quire.models.loading.gguf_rope import FACTOR_TENSORS
from quire.models.loading.quantization.schemes import Schemes, stored_tensors, unused_patterns
from quire.spec.layout import Layout
from quire.spec.model import ModelSpec
from quire.spec.tensor import TensorSpec

_GGUF_STEMS = {
    "words": "token_embd",
    "positions": "position_embd",
    "types": "token_types",
    "embedding_norm": "token_embd_norm",
    "output_norm": "output_norm",
    "head": "output",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "qkv": "attn_qkv",
    "q_a": "attn_q_a",
    "q_a_norm": "attn_q_a_norm",
    "q_b": "attn_q_b",
    "kv_a": "attn_kv_a_mqa",
    "kv_a_norm": "attn_kv_a_norm",
    "kv_b": "attn_kv_b",
    "k_b": "attn_k_b",
    "v_b": "attn_v_b",
    "out": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "gate_up": "ffn_up",
    "down": "ffn_down",
    "attention_norm": "attn_norm",
    "attention_norm_2": "attn_norm_2",
    "mlp_norm": "ffn_norm",
    "added_attention_norm": "post_attention_norm",
    "added_mlp_norm": "post_ffw_norm",
    "after_attention_norm": "attn_output_norm",
    "after_mlp_norm": "layer_output_norm",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "sinks": "attn_sinks",
    "router": "ffn_gate_inp",
    "router_correction": "exp_probs_b",
    "expert_gate": "ffn_gate_exps",
    "expert_up": "ffn_up_exps",
    "expert_down": "ffn_down_exps",
    "shared_router": "ffn_gate_inp_shexp",
    "shared_gate": "ffn_gate_shexp",
    "shared_up": "ffn_up_shexp",
    "shared_down": "ffn_down_shexp",
}
"""By role. The roles of a family's tensors, not the family, say what they are called."""

_SCALE = (".weight_scale_inv", ".weight_scale")
"""DeepSeek's name of what all others call a scale; it is one."""


@dataclass(frozen=True, slots=True)
class FileNames:
    """How the files of one format spell the tensors of one model."""

    spelled: Mapping[str, TensorSpec]
    """Name in the file → what it holds."""
    tensors: tuple[TensorSpec, ...]
    """All that the model takes."""
    layout: Callable[[TensorSpec], Layout]
    unused: re.Pattern[str]
    """Names in the file that hold nothing the model needs."""

    def find(self, name: str) -> TensorSpec | None:
        return self.spelled.get(name)


def safetensors_names(spec: ModelSpec, names: Iterable[str], schemes: Schemes | None = None) -> FileNames:
    """Hugging Face's; checkpoints saved without a head leave the prefix out, old ones have other endings. A name that
    the spec calls unused is another for a tensor only where that is not there under its own."""
    tensors = {tensor.name: tensor for tensor in stored_tensors(spec, schemes or {})}
    patterns = [*spec.unused, *(pattern for pattern, _ in spec.left_out), *unused_patterns(schemes or {})]
    unused = re.compile(
        "|".join((*patterns, *(pattern.removeprefix(re.escape(spec.prefix)) for pattern in patterns))) or r"(?!)"
    )
    given = dict.fromkeys(names)
    spelled: dict[str, TensorSpec] = {}
    for name in given:
        found = tensors.get(current_name(spec, name, tensors))
        is_another = found is not None and found.name != name and found.name in given
        if found is not None and not (is_another and unused.fullmatch(name)):
            spelled[name] = found
    return FileNames(spelled, tuple(tensors.values()), lambda tensor: tensor.layout, unused)


def current_name(spec: ModelSpec, name: str, known: Container[str]) -> str:
    """What a tensor of a file is called in the spec."""
    current = _current(moved_name(spec, name), (*spec.renamed, _SCALE))
    return current if current in known else spec.prefix + current


def gguf_names(spec: ModelSpec) -> FileNames:
    """Made of what a tensor is for and of its layer."""
    spelled = {}
    for tensor in spec.tensors():
        stem = _GGUF_STEMS.get(tensor.role)
        if stem is not None:
            block = "" if tensor.layer is None else f"blk.{tensor.layer}."
            spelled[f"{block}{stem}.{tensor.ending}"] = tensor
    unused = "|".join(re.escape(name) for name in FACTOR_TENSORS)  # part of the config
    return FileNames(spelled, tuple(spec.tensors()), lambda tensor: tensor.gguf_layout, re.compile(unused))


def moved_name(spec: ModelSpec, name: str) -> str:
    """Without what files of other ages and of larger models write before it."""
    name = name.removeprefix(spec.outer_prefix)
    for old, new in spec.moved:
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def _current(name: str, renamed: Iterable[tuple[str, str]]) -> str:
    for old, new in renamed:
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
