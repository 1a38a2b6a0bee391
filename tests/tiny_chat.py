"""A tiny random llama with a tiny tokenizer and a chat template: a whole model that loads in a moment."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.text import vocabularies

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 256
_HIDDEN, _HEADS, _WIDE, _LAYERS = 32, 2, 48, 2


def write_tiny_chat(folder: Path) -> Path:
    """The model's folder; every call writes the same weights."""
    tokenizer = vocabularies.byte_level()
    vocabularies.write_folder(folder, tokenizer, eos_token="<|im_end|>", chat_template=TEMPLATE)
    vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _HIDDEN,
        "intermediate_size": _WIDE,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "vocab_size": vocabulary,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(vocabulary), folder / "model.safetensors")
    return folder


def _weights(vocabulary: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    layer = {
        **{f"self_attn.{name}_proj": (_HIDDEN, _HIDDEN) for name in "qkvo"},
        "mlp.gate_proj": (_WIDE, _HIDDEN),
        "mlp.up_proj": (_WIDE, _HIDDEN),
        "mlp.down_proj": (_HIDDEN, _WIDE),
        "input_layernorm": (_HIDDEN,),
        "post_attention_layernorm": (_HIDDEN,),
    }
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (vocabulary, _HIDDEN), "norm": (_HIDDEN,)}
    shapes |= {f"layers.{index}.{name}": shape for index in range(_LAYERS) for name, shape in layer.items()}
    return {f"model.{name}.weight": torch.randn(shape, generator=generator) * 0.4 for name, shape in shapes.items()}
