"""Heads of random weights for a model of any size: they draft, and are hardly ever right."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from quire.models.loading.header import read_model_facts
from quire.spec.model import ModelSpec

HEADS = ("eagle", "eagle3", "medusa")
MLP = 256
CAN_SAY = 1000
"""Tokens of an EAGLE-3 head."""


def random_head(kind: str, model: str, folder: Path) -> Path:
    """A head for `model` in the published form; returns `folder`."""
    large = read_model_facts(model).spec
    torch.manual_seed(7)
    if kind == "medusa":
        config: dict[str, Any] = {"medusa_num_heads": 2, "medusa_num_layers": 1, "hidden_size": large.hidden_size}
        tensors = _medusa(large)
    else:
        config = _config(large) | ({"draft_vocab_size": CAN_SAY} if kind == "eagle3" else {})
        tensors = _eagle(large) if kind == "eagle" else _eagle3(large)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _config(large: ModelSpec) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-5,
        "hidden_size": large.hidden_size,
        "intermediate_size": MLP,
        "num_attention_heads": large.num_heads,
        "num_key_value_heads": large.num_kv_heads,
        "head_dim": large.head_dim,
        "vocab_size": large.vocab_size,
        "max_position_embeddings": large.max_position,
    }


def _matrix(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, dtype=torch.bfloat16) / columns**0.5


def _norm(large: ModelSpec) -> Tensor:
    return 1 + torch.randn(large.hidden_size, dtype=torch.bfloat16) * 0.1


def _layer(large: ModelSpec, name: str, read: int) -> dict[str, Tensor]:
    """One whose attention reads vectors of `read` numbers."""
    hidden, heads, kv_heads = (
        large.hidden_size,
        large.num_heads * large.head_dim,
        large.num_kv_heads * large.head_dim,
    )
    return {
        f"{name}.self_attn.q_proj.weight": _matrix(heads, read),
        f"{name}.self_attn.k_proj.weight": _matrix(kv_heads, read),
        f"{name}.self_attn.v_proj.weight": _matrix(kv_heads, read),
        f"{name}.self_attn.o_proj.weight": _matrix(hidden, heads),
        f"{name}.mlp.gate_proj.weight": _matrix(MLP, hidden),
        f"{name}.mlp.up_proj.weight": _matrix(MLP, hidden),
        f"{name}.mlp.down_proj.weight": _matrix(hidden, MLP),
        f"{name}.post_attention_layernorm.weight": _norm(large),
    }


def _eagle(large: ModelSpec) -> dict[str, Tensor]:
    hidden = large.hidden_size
    return {"fc.weight": _matrix(hidden, 2 * hidden), **_layer(large, "layers.0", hidden)}


def _eagle3(large: ModelSpec) -> dict[str, Tensor]:
    hidden = large.hidden_size
    says = torch.arange(CAN_SAY) * (large.vocab_size // CAN_SAY)
    return {
        "fc.weight": _matrix(hidden, 3 * hidden),
        **_layer(large, "midlayer", 2 * hidden),
        "midlayer.input_layernorm.weight": _norm(large),
        "midlayer.hidden_norm.weight": _norm(large),
        "norm.weight": _norm(large),
        "lm_head.weight": _matrix(CAN_SAY, hidden),
        "d2t": says - torch.arange(CAN_SAY),
    }


def _medusa(large: ModelSpec) -> dict[str, Tensor]:
    hidden = large.hidden_size
    tensors = {}
    for number in range(2):
        tensors[f"{number}.0.linear.weight"] = _matrix(hidden, hidden)
        tensors[f"{number}.0.linear.bias"] = _norm(large)
        tensors[f"{number}.1.weight"] = _matrix(large.vocab_size, hidden)
    return tensors
