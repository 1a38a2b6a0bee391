"""A tiny random Llama or Qwen with a byte-level tokenizer, large enough for every block of GGUF's types."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.text import vocabularies

HIDDEN, WIDE, LAYERS = 64, 256, 3
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"


def write_tiny(folder: Path, dtype: torch.dtype = torch.bfloat16, **changes: Any) -> Path:
    """Every call with the same arguments writes the same weights."""
    tokenizer = vocabularies.byte_level()
    vocabularies.write_folder(folder, tokenizer, eos_token="<|im_end|>", chat_template=TEMPLATE)
    vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": vocabulary,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "hidden_act": "silu",
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(vocabulary, config, dtype), folder / "model.safetensors")
    return folder


def _weights(vocabulary: int, config: dict[str, Any], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
        "self_attn.k_proj.weight": (HIDDEN // 2, HIDDEN),
        "self_attn.v_proj.weight": (HIDDEN // 2, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        "mlp.gate_proj.weight": (WIDE, HIDDEN),
        "mlp.up_proj.weight": (WIDE, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, WIDE),
        "input_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
    }
    if config["model_type"] == "qwen2":
        layer |= {f"self_attn.{name}_proj.bias": (HIDDEN // (1 if name == "q" else 2),) for name in "qkv"}
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (vocabulary, HIDDEN), "norm.weight": (HIDDEN,)}
    shapes |= {f"layers.{index}.{name}": shape for index in range(LAYERS) for name, shape in layer.items()}
    tensors = {}
    for name, shape in shapes.items():
        around = 1.0 if name.endswith("norm.weight") else 0.0
        tensors[f"model.{name}"] = (around + torch.randn(shape, generator=generator) * 0.08).to(dtype)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = (torch.randn(vocabulary, HIDDEN, generator=generator) * 0.08).to(dtype)
    return tensors
