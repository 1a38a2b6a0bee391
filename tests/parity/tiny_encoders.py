"""Tiny random encoders, written as real checkpoints, and what `transformers` makes of them."""

import json
import logging
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

VOCABULARY = 199
_SHAPE = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 96,
    "type_vocab_size": 2,
}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert"},
    "bert-tanh": {"model_type": "bert", "hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
    "bert-masked-lm": {"model_type": "bert", "masked_lm": True},
    "bert-first-names": {"model_type": "bert", "masked_lm": True, "first_names": True},
    "roberta": {"model_type": "roberta", "type_vocab_size": 1, "pad_token_id": 1},
    "xlm-roberta": {"model_type": "xlm-roberta", "type_vocab_size": 1, "pad_token_id": 1, "masked_lm": True},
    "mpnet": {"model_type": "mpnet", "pad_token_id": 1},
    "modernbert": {"model_type": "modernbert", "local_attention": 12, "num_hidden_layers": 4, "pad_token_id": 0},
    "modernbert-masked-lm": {"model_type": "modernbert", "num_hidden_layers": 4, "pad_token_id": 0, "masked_lm": True},
    "nomic_bert": {"model_type": "nomic_bert"},
}


def make_encoder(name: str, folder: Path) -> Any:
    """Write the case called `name` to `folder`; returns the oracle."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    given = dict(ENCODERS[name])
    masked_lm, first_names = given.pop("masked_lm", False), given.pop("first_names", False)
    torch.manual_seed(len(name))
    config = AutoConfig.for_model(given.pop("model_type"), **{**_SHAPE, **given})
    config._attn_implementation = "eager"
    kind = AutoModelForMaskedLM if masked_lm else AutoModel
    oracle = kind.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter.copy_(parameter + torch.randn_like(parameter) * 0.1)
    oracle.tie_weights() if masked_lm else None
    oracle.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(json.loads(config.to_json_string(use_diff=False))))
    if first_names:
        _use_first_names(folder / "model.safetensors")
    return oracle.base_model


def _use_first_names(file: Path) -> None:
    """As the first BERT checkpoints have them."""
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(file).items()
    }
    save_file(tensors, file)
