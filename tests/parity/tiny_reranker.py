"""A tiny random causal LM with the prompt and the settings of Qwen3-Reranker as published, and what `transformers`
makes of it."""

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM

QUERY = "which dog jumps?"
TEXTS = ["a", "The dog jumps over the lazy dog.\n", " fox and dog", "12 quick brown foxes!\n\nyes"]
SETTINGS: dict[str, Any] = {
    "architectures": ["Qwen3ForSequenceClassification"],
    "classifier_from_token": ["no", "yes"],
    "is_original_qwen3_reranker": True,
}
"""What users of vLLM give as --hf-overrides."""
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_USUAL = "Given a web search query, retrieve relevant passages that answer the query"
_DECODER: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def qwen_tokenizer() -> tokenizers.Tokenizer:
    """Byte-level BPE, cut as Qwen's is: tokens may begin with a space, and end with a line break."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(_QWEN), behavior="isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_BEFORE, _BEHIND, QUERY, *TEXTS, "yes", "no", "dog?\n"] * 3, trainer)
    return tokenizer


class TinyReranker:
    """A checkpoint on disk and its oracle."""

    def __init__(
        self, folder: Path, model_type: str = "qwen3", settings: dict[str, Any] = SETTINGS, **more: Any
    ) -> None:
        config = AutoConfig.for_model(model_type, **{**_DECODER, **more})
        config._attn_implementation = "eager"
        torch.manual_seed(7)
        self._oracle = AutoModelForCausalLM.from_config(config).float().eval()
        with torch.no_grad():
            for parameter in self._oracle.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        self._oracle.save_pretrained(folder)
        saved = json.loads(config.to_json_string(use_diff=False))
        saved["architectures"] = [type(self._oracle).__name__]
        (folder / "config.json").write_text(json.dumps(saved | settings))
        self.tokenizer = qwen_tokenizer()
        self.tokenizer.save(str(folder / "tokenizer.json"))
        self._answers = [self.tokenizer.token_to_id(word) for word in settings["classifier_from_token"]]

    def prompt(self, query: str, document: str, instruction: str = _USUAL) -> list[int]:
        """As the model's page makes it: three texts, each tokenized whole."""
        pair = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
        return [token for text in (_BEFORE, pair, _BEHIND) for token in self.tokenizer.encode(text).ids]

    @torch.no_grad()
    def logits(self, ids: list[int]) -> list[float]:
        """Of the words that it may answer with."""
        found: list[float] = self._oracle(torch.tensor([ids])).logits[0, -1, self._answers].tolist()
        return found

    def score(self, ids: list[int]) -> float:
        """The share of "yes" between it and "no"."""
        return torch.softmax(torch.tensor(self.logits(ids)), 0)[-1].item()
