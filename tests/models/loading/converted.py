"""Tiny random models of transformers, and their conversion to GGUF as llama.cpp's converter does it.

Written from the converter's rules and the `gguf` package's own name tables, not from quire's, so that the two check
each other.
"""

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import quants
from safetensors.torch import load_file
from torch import Tensor

from tests.models.loading.converted_metadata import write_metadata

_USUAL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 48,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_RMS: dict[str, Any] = {**_USUAL, "rms_norm_eps": 1e-5}
_GEMMA: dict[str, Any] = {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32, "rms_norm_eps": 1e-6}
_GPT2: dict[str, Any] = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_inner": 256, "vocab_size": 48}
_GRANITE: dict[str, Any] = {
    "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.6,
    "logits_scaling": 0.5,
}
# Epsilons that no family has by itself, so that a file's own must be read.
_LAYER: dict[str, Any] = {**_USUAL, "layer_norm_eps": 1e-3}
_FALCON: dict[str, Any] = {**_USUAL, "layer_norm_epsilon": 1e-3, "max_position_embeddings": 2048}
_COHERE: dict[str, Any] = {**_LAYER, "logit_scale": 0.5, "rope_parameters": {"rope_theta": 50_000.0}}
_EXPERTS: dict[str, Any] = {**_RMS, "num_experts_per_tok": 2, "tie_word_embeddings": False}
_LATENT: dict[str, Any] = {
    **_EXPERTS,
    "rms_norm_eps": 1e-6,
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
}
_GROUPS: dict[str, Any] = {"n_routed_experts": 6, "n_group": 3, "topk_group": 2}
_V2_GROUPS: dict[str, Any] = {**_GROUPS, "topk_method": "group_limited_greedy"}
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 50_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.7,
    "mscale_all_dim": 0.7,
}
_GPT_OSS: dict[str, Any] = {
    "head_dim": 32,
    "sliding_window": 8,
    "rope_parameters": {
        "rope_theta": 50_000.0,
        "rope_type": "yarn",
        "factor": 4.0,
        "truncate": False,
        "original_max_position_embeddings": 32,
    },
}
_LLAMA4: dict[str, Any] = {
    "num_experts_per_tok": 1,
    "num_local_experts": 4,
    "intermediate_size_mlp": 128,
    "interleave_moe_layer_step": 2,
    "num_hidden_layers": 5,
    "head_dim": 32,
    "rope_parameters": {"rope_theta": 50_000.0, "rope_type": "default"},
}
_NEOX: dict[str, Any] = {**_LAYER, "tie_word_embeddings": False}
_ENCODER: dict[str, Any] = {**_LAYER, "num_key_value_heads": 4, "type_vocab_size": 3}


@dataclass(frozen=True, slots=True)
class Original:
    """A model of transformers and what its file calls its architecture."""

    architecture: str
    family: str
    fields: dict[str, Any]

    @property
    def is_encoder(self) -> bool:
        return self.architecture.endswith("bert")


MODELS: dict[str, Original] = {
    "llama": Original("llama", "Llama", {**_RMS, "rope_theta": 50_000.0, "tie_word_embeddings": False}),
    "llama-tied-biased": Original(
        "llama", "Llama", {**_RMS, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "qwen2": Original("qwen2", "Qwen2", {**_RMS, "tie_word_embeddings": True}),
    "qwen2vl": Original("qwen2vl", "Qwen2", {**_RMS, "tie_word_embeddings": False}),
    "qwen3": Original("qwen3", "Qwen3", {**_RMS, "head_dim": 32, "tie_word_embeddings": False}),
    "qwen3vl": Original("qwen3vl", "Qwen3", {**_RMS, "head_dim": 32, "tie_word_embeddings": False}),
    "gemma2": Original("gemma2", "Gemma2", {**_RMS, **_GEMMA}),
    "gemma3": Original("gemma3", "Gemma3", {**_RMS, **_GEMMA, "num_hidden_layers": 7}),
    "phi3": Original("phi3", "Phi3", {**_RMS, "tie_word_embeddings": False}),
    "gpt2": Original("gpt2", "GPT2", {**_GPT2, "bos_token_id": 1, "eos_token_id": 2, "layer_norm_epsilon": 1e-3}),
    "olmo2": Original("olmo2", "Olmo2", {**_RMS, "rope_theta": 50_000.0}),
    "granite": Original("granite", "Granite", {**_RMS, **_GRANITE, "tie_word_embeddings": True}),
    "smollm3": Original("smollm3", "SmolLM3", {**_RMS, "num_hidden_layers": 5, "tie_word_embeddings": True}),
    "stablelm": Original("stablelm", "StableLm", {**_LAYER, "use_qkv_bias": True}),
    "stablelm-parallel": Original("stablelm", "StableLm", {**_LAYER, "use_parallel_residual": True}),
    "stablelm-all-turned": Original(
        "stablelm", "StableLm", {**_LAYER, "rope_parameters": {"rope_theta": 10_000.0, "partial_rotary_factor": 1.0}}
    ),
    "gptneox": Original("gptneox", "GPTNeoX", _NEOX),
    "gptneox-sequential": Original("gptneox", "GPTNeoX", {**_NEOX, "use_parallel_residual": False, "rotary_pct": 1.0}),
    "falcon-7b": Original("falcon", "Falcon", {**_FALCON, "multi_query": True, "num_kv_heads": 1}),
    "falcon-40b": Original("falcon", "Falcon", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-11b": Original(
        "falcon",
        "Falcon",
        {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    "command-r": Original("command-r", "Cohere", _COHERE),
    "command-r-plus": Original("command-r", "Cohere", {**_COHERE, "use_qk_norm": True}),
    "cohere2": Original("cohere2", "Cohere2", {**_COHERE, "sliding_window": 8, "num_hidden_layers": 5}),
    "mixtral": Original("llama", "Mixtral", {**_EXPERTS, "num_local_experts": 4}),
    "qwen3moe": Original(
        "qwen3moe",
        "Qwen3Moe",
        {**_EXPERTS, "num_experts": 6, "moe_intermediate_size": 64, "head_dim": 32, "norm_topk_prob": True},
    ),
    "olmoe": Original("olmoe", "Olmoe", {**_EXPERTS, "num_experts": 3}),
    "phimoe": Original(
        "phimoe", "Phimoe", {**_EXPERTS, "num_local_experts": 4, "attention_bias": True, "lm_head_bias": True}
    ),
    "deepseek2-lite": Original(
        "deepseek2",
        "DeepseekV2",
        {**_LATENT, "q_lora_rank": None, "n_routed_experts": 4, "routed_scaling_factor": 1.5, "n_shared_experts": 2},
    ),
    "deepseek2": Original("deepseek2", "DeepseekV2", {**_LATENT, **_V2_GROUPS, "rope_parameters": _YARN}),
    "deepseek2-v3": Original("deepseek2", "DeepseekV3", {**_LATENT, **_GROUPS, "num_mtp_layers": 0}),
    "gpt-oss": Original("gpt-oss", "GptOss", {**_EXPERTS, **_GPT_OSS, "num_local_experts": 4}),
    "llama4": Original("llama4", "Llama4", {**_EXPERTS, **_LLAMA4}),
    "bert": Original("bert", "Bert", _ENCODER),
    "nomic-bert": Original("nomic-bert", "NomicBert", _ENCODER),
}
_HEADS = {"GPT2": "LMHeadModel"}
_CONFIGS = {"Gemma3": "Gemma3TextConfig", "Llama4": "Llama4TextConfig"}
_PAIRED = ("llama", "granite", "smollm3")
"""Whose rotary rows the converter makes neighbours."""
_EXPERT = re.compile(r"\.experts\.(\d+)\.")
_FUSED = re.compile(r"(mlp|feed_forward)\.experts\.(gate_up|down)_proj$")
_TRANSPOSED = ("gpt-oss", "llama4")
"""Whose tensors of all experts are [experts, inputs, outputs]."""
_NOT_CONVERTED = ("pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids")


def tiny_model(name: str, kind: str = "F32") -> Any:
    """A model whose every weight is random, norms included; with a packed type, what that leaves of its matrices."""
    original = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, _CONFIGS.get(original.family, f"{original.family}Config"))(**original.fields)
    config._attn_implementation = "eager"
    head = "Model" if original.is_encoder else _HEADS.get(original.family, "ForCausalLM")
    model = getattr(transformers, original.family + head)(config).float()
    transposed = {id(part.weight) for part in model.modules() if type(part).__name__ == "Conv1D"}
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            # Multiples of 1/1024, which adding and taking away 1 leaves as they are.
            around = 1 if torch.equal(parameter, torch.ones_like(parameter)) else 0
            parameter.copy_(around + (torch.randn_like(parameter) * 100).round() / 1024)
            if parameter.dim() > 1 and "norm" not in parameter_name and not parameter_name.endswith("bias"):
                is_fused = original.architecture in _TRANSPOSED and _FUSED.search(parameter_name)
                turned = id(parameter) in transposed or is_fused
                parameter.copy_(rounded(parameter.mT, kind).mT if turned else rounded(parameter, kind))
    return model.eval()


def rounded(values: Tensor, kind: str) -> Tensor:
    """What storing a matrix in this type leaves of it."""
    number = gguf.GGMLQuantizationType[kind]
    stored = quants.quantize(np.ascontiguousarray(values.detach().numpy()), number)
    return torch.from_numpy(quants.dequantize(stored.view(np.uint8), number).copy())


def weights(model: Any) -> dict[str, Tensor]:
    """What its checkpoint holds, under the names that checkpoints have."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors")


def stacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of all experts as one each, [experts, rows, columns]."""
    found: dict[str, Tensor] = {}
    experts: dict[str, list[Tensor]] = {}
    for name, values in sorted(tensors.items(), key=lambda item: _expert(item[0])):
        if _expert(name) < 0:
            found[name] = values
        else:
            experts.setdefault(_EXPERT.sub(".experts.", name), []).append(values)
    return found | {name: torch.stack(values) for name, values in experts.items()}


def separated(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gates and ups that quire holds as one, as GGUF has them: as two."""
    found: dict[str, Tensor] = {}
    for name, values in tensors.items():
        stem, _, ending = name.rpartition(".")
        if stem.endswith(".experts.gate_up_proj"):
            gate, up = values.chunk(2)
            found |= {f"{stem}.gate.{ending}": gate, f"{stem}.up.{ending}": up}
        else:
            found[name] = values
    return found


def _expert(name: str) -> int:
    number = _EXPERT.search(name)
    return -1 if number is None else int(number[1])


def write_gguf(path: Path, name: str, model: Any, kind: str = "F32") -> Path:
    """The model as a GGUF file with matrices of this type."""
    writer = gguf.GGUFWriter(path, MODELS[name].architecture)
    write_metadata(writer, MODELS[name].architecture, model.config)
    for gguf_name, values in converted(MODELS[name].architecture, model, kind):
        # norms stay plain, even those that have a row for each head; what is transposed has other blocks
        is_plain = values.dim() == 1 or gguf_name.endswith(".bias") or "norm" in gguf_name or "attn_k_b" in gguf_name
        number = gguf.GGMLQuantizationType["F32" if is_plain else kind]
        writer.add_tensor(gguf_name, quants.quantize(np.ascontiguousarray(values.numpy()), number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(architecture: str, model: Any, kind: str = "F32") -> Iterator[tuple[str, Tensor]]:
    """Tensors under GGUF names and in GGUF layout."""
    number = next(number for number, text in gguf.MODEL_ARCH_NAMES.items() if text == architecture)
    names = gguf.get_tensor_name_map(number, model.config.num_hidden_layers)
    tensors = split_latents(model, _unfused(architecture, stacked(weights(model))), kind)
    for hf_name, values in tensors.items():
        if hf_name in _NOT_CONVERTED:
            continue
        # the converter merges Mixtral's experts under names of its own
        known = re.sub(r"model\.(.*)block_sparse_moe\.experts", r"\1feed_forward.experts", hf_name)
        known = known.replace("e_score_correction_bias", "e_score_correction.bias")
        gguf_name = names.get_name(known, try_suffixes=(".weight", ".bias"))
        assert gguf_name is not None, hf_name
        yield gguf_name, laid_out(architecture, hf_name, values, model.config)


def split_latents(model: Any, tensors: dict[str, Tensor], kind: str) -> dict[str, Tensor]:
    """What newer converters make of keys and values in latent attention; older ones leave them together.

    Keys stay plain, as what their type leaves of them before they are transposed.
    """
    if model.config.model_type != "deepseek_v3":
        return tensors
    found: dict[str, Tensor] = {}
    for name, values in tensors.items():
        if not name.endswith("kv_b_proj.weight"):
            found[name] = values
            continue
        heads = rounded(values, kind).view(model.config.num_attention_heads, -1, values.shape[1])
        keys, rest = heads.split((model.config.qk_nope_head_dim, model.config.v_head_dim), dim=1)
        found[name.replace("kv_b_proj", "k_b_proj")] = keys.transpose(1, 2)
        found[name.replace("kv_b_proj", "v_b_proj")] = rest
    return found


def _unfused(architecture: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gates and ups of all experts as two tensors, and all matrices of experts with rows of outputs."""
    found: dict[str, Tensor] = {}
    for name, values in tensors.items():
        stem, fused, ending = name.partition(".experts.gate_up_proj")
        if fused:
            rows = values if ending else values.mT
            gate, up = (rows[:, ::2], rows[:, 1::2]) if architecture == "gpt-oss" else rows.chunk(2, dim=1)
            ending = ending.replace("_bias", ".bias") or ".weight"
            found |= {f"{stem}.experts.gate_proj{ending}": gate, f"{stem}.experts.up_proj{ending}": up}
        elif _FUSED.search(name):
            found[f"{name}.weight"] = values.mT
        else:
            ending = ".weight" if name.endswith("sinks") else ""
            found[name.replace("down_proj_bias", "down_proj.bias") + ending] = values
    return found


def laid_out(architecture: str, name: str, values: Tensor, config: Any) -> Tensor:
    """What the converter does to a tensor of a checkpoint."""
    if architecture in _PAIRED and name.rpartition(".")[0].endswith(("q_proj", "k_proj")):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    if architecture == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return values.t()
    if architecture == "gptneox" and "query_key_value" in name:
        parts = values.reshape(config.num_attention_heads, 3, -1, *values.shape[1:])
        return torch.cat([parts[:, place].reshape(-1, *values.shape[1:]) for place in range(3)])
    if architecture == "falcon" and "query_key_value" in name:
        groups = config.num_kv_heads
        size = config.hidden_size // config.num_attention_heads
        parts = values.reshape(groups, config.num_attention_heads // groups + 2, size, *values.shape[1:])
        cut = (parts[:, :-2], parts[:, [-2]], parts[:, [-1]])
        return torch.cat([part.reshape(-1, *values.shape[1:]) for part in cut])
    return values
