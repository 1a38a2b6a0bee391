"""Tiny random classifiers and cross-encoders, written as real checkpoints, and what `transformers` makes of them."""

import json
import logging
from pathlib import Path
from typing import Any

import torch
from tokenizers.processors import BertProcessing, RobertaProcessing
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from tests.text.vocabularies import wordpiece

_SHAPE = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 96,
    "pad_token_id": 0,
}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", "num_labels": 1},
    "bert-three": {"model_type": "bert", "num_labels": 3},
    "bert-multi-label": {"model_type": "bert", "num_labels": 3, "problem_type": "multi_label_classification"},
    "roberta": {"model_type": "roberta", "num_labels": 1, "type_vocab_size": 1, "pad_token_id": 1},
    "roberta-two": {"model_type": "roberta", "num_labels": 2, "type_vocab_size": 1, "pad_token_id": 1},
    "xlm-roberta": {"model_type": "xlm-roberta", "num_labels": 1, "type_vocab_size": 1, "pad_token_id": 1},
    "mpnet": {"model_type": "mpnet", "num_labels": 1, "pad_token_id": 1},
    "modernbert-cls": {"model_type": "modernbert", "num_labels": 1, "local_attention": 12, "classifier_pooling": "cls"},
    "modernbert-mean": {"model_type": "modernbert", "num_labels": 3, "classifier_pooling": "mean"},
    "modernbert-biased": {"model_type": "modernbert", "num_labels": 1, "classifier_bias": True, "norm_bias": True},
    "bert-regression": {"model_type": "bert", "num_labels": 1, "problem_type": "regression"},
    "llama-reward": {"model_type": "llama", "num_labels": 1},
    "qwen2": {"model_type": "qwen2", "num_labels": 2, "num_key_value_heads": 2},
    "qwen3-reranker": {"model_type": "qwen3", "num_labels": 1, "num_key_value_heads": 2, "head_dim": 16},
    "qwen3-tied": {"model_type": "qwen3", "num_labels": 1, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "gpt2": {
        "model_type": "gpt2",
        "num_labels": 3,
        "n_embd": 48,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 96,
        "n_inner": 80,
    },
    "mistral": {"model_type": "mistral", "num_labels": 1, "num_key_value_heads": 2, "sliding_window": 8},
}
_DECODER: dict[str, Any] = {"num_labels": 2, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
OTHER_DECODERS: dict[str, dict[str, Any]] = {
    "gemma2": {**_DECODER, "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    "gemma3_text": {**_DECODER, "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    "phi3": _DECODER,
    "olmo2": _DECODER,
    "smollm3": _DECODER,
    "stablelm": {**_DECODER, "hidden_size": 64},
    "gpt_neox": {"num_labels": 2},
    "opt": {"num_labels": 2, "ffn_dim": 80, "word_embed_proj_dim": 48},
    "opt-narrow": {"num_labels": 2, "ffn_dim": 80, "word_embed_proj_dim": 24, "do_layer_norm_before": False},
    "falcon": {"num_labels": 2},
}
"""The rest of quire's families that `transformers` has classifiers of; their head is the same."""


class TinyClassifier:
    """A checkpoint on disk, its oracle, and the tokenizer that `transformers` makes of the same file."""

    def __init__(self, name: str, folder: Path) -> None:
        logging.getLogger("transformers").setLevel(logging.ERROR)
        given = {"model_type": name.partition("-")[0], **(CLASSIFIERS | OTHER_DECODERS)[name]}
        config = AutoConfig.for_model(given.pop("model_type"), **{**_SHAPE, **given})
        config._attn_implementation = "eager"
        torch.manual_seed(len(name))
        self.num_labels, self.problem = given["num_labels"], given.get("problem_type", "")
        self.oracle = AutoModelForSequenceClassification.from_config(config).float().eval()
        with torch.no_grad():
            for parameter in self.oracle.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        self.oracle.save_pretrained(folder)
        saved = json.loads(config.to_json_string(use_diff=False))
        saved["architectures"] = [type(self.oracle).__name__]
        (folder / "config.json").write_text(json.dumps(saved))
        backend = wordpiece()
        frame = RobertaProcessing if "roberta" in name or name == "mpnet" else BertProcessing
        backend.post_processor = frame(("[SEP]", 3), ("[CLS]", 2))
        backend.save(str(folder / "tokenizer.json"))
        self._tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
        self._takes_types = name.startswith("bert")

    @torch.no_grad()
    def raw(self, *texts: str, longest: int | None = None) -> list[float]:
        """What the oracle says of a text or of a pair."""
        cut = {} if longest is None else {"truncation": True, "max_length": longest}
        inputs = self._tokenizer(*texts, return_tensors="pt", return_token_type_ids=self._takes_types, **cut)
        logits: list[float] = self.oracle(**inputs).logits[0].tolist()
        return logits
