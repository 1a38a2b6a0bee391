"""Small tokenizers of every kind, trained on the corpus in a moment, and written as folders and GGUF files."""

import io
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.text.corpus import PLAIN

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED = ("<tool>",)
TRAINING = [text for text in PLAIN for _ in range(3)]

NORMAL, UNKNOWN, CONTROL_TYPE, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def byte_level(*pre: Any, normalizer: Any = None) -> tokenizers.Tokenizer:
    """Byte-level BPE, cut first as the given pre-tokenizers say, or as GPT-2 does."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    cut = list(pre) or [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if pre:
        cut.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cut)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=list(CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING, trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in USER_DEFINED])
    return tokenizer


def metaspace() -> tokenizers.Tokenizer:
    """Unigram with a Metaspace decoder, as T5 and XLM-R have it."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", *CONTROL], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TRAINING, trainer)
    return tokenizer


def wordpiece() -> tokenizers.Tokenizer:
    """BERT's kind."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TRAINING, trainer)
    ids = [("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    return tokenizer


def sentencepiece_model(**options: Any) -> bytes:
    """A SentencePiece BPE model with byte fallback, as Llama 2 has it; `options` are the trainer's."""
    out = io.BytesIO()
    settings: dict[str, Any] = {
        "model_type": "bpe",
        "vocab_size": 600,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "character_coverage": 0.98,
        "user_defined_symbols": list(USER_DEFINED),
        "control_symbols": list(CONTROL),
        "minloglevel": 2,
    }
    lines = (line for text in TRAINING for line in text.split("\n") if line and "\x00" not in line)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=out, **(settings | options))
    return out.getvalue()


def write_folder(folder: Path, tokenizer: tokenizers.Tokenizer, **config: Any) -> Path:
    """A checkpoint folder with the tokenizer and its tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def bpe_metadata(tokenizer: tokenizers.Tokenizer, pre: str) -> dict[str, Any]:
    """What a converter writes into a GGUF file for byte-level BPE."""
    tokens = tokens_of(tokenizer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            CONTROL_TYPE if token in CONTROL else USER if token in USER_DEFINED else NORMAL for token in tokens
        ],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
    }


def spm_metadata(model: bytes) -> dict[str, Any]:
    """What a converter writes into a GGUF file for SentencePiece."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    types = []
    for token_id in range(processor.vocab_size()):
        token = processor.id_to_piece(token_id)
        kinds = {UNKNOWN: processor.is_unknown, CONTROL_TYPE: processor.is_control, BYTE: processor.is_byte}
        kind = next((kind for kind, holds in kinds.items() if holds(token_id)), NORMAL)
        types.append(USER if token in USER_DEFINED else kind)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [processor.id_to_piece(token_id) for token_id in range(len(types))],
        "tokenizer.ggml.scores": [processor.get_score(token_id) for token_id in range(len(types))],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": processor.bos_id(),
        "tokenizer.ggml.eos_token_id": processor.eos_id(),
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
    }


def wordpiece_metadata(tokenizer: tokenizers.Tokenizer) -> dict[str, Any]:
    """What a converter writes into a GGUF file for BERT: beginnings of words are marked instead of insides."""
    tokens = tokens_of(tokenizer)
    special = [token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") for token in tokens]
    spelled = [
        token if is_special else token[2:] if token.startswith("##") else "▁" + token
        for token, is_special in zip(tokens, special, strict=True)
    ]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": spelled,
        "tokenizer.ggml.token_type": [CONTROL_TYPE if is_special else NORMAL for is_special in special],
        "tokenizer.ggml.bos_token_id": tokens.index("[CLS]"),
        "tokenizer.ggml.seperator_token_id": tokens.index("[SEP]"),
        "tokenizer.ggml.unknown_token_id": tokens.index("[UNK]"),
        "tokenizer.ggml.padding_token_id": tokens.index("[PAD]"),
    }


def tokens_of(tokenizer: tokenizers.Tokenizer) -> list[str]:
    """Every token in the order of its id."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    return sorted(vocabulary, key=lambda token: vocabulary[token])


def write_gguf(path: Path, metadata: Mapping[str, Any]) -> Path:
    """A GGUF file of metadata alone."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata))
    body = b"".join(_text(key) + _value(value) for key, value in metadata.items())
    path.write_bytes(head + body + bytes(-len(head + body) % 32))
    return path


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<IB", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
    return struct.pack("<I", 9) + _array(value)


def _array(values: Sequence[Any]) -> bytes:
    number, packed = {
        str: (8, _text),
        int: (5, lambda item: struct.pack("<i", item)),
        float: (6, lambda item: struct.pack("<f", item)),
    }[type(values[0])]
    return struct.pack("<IQ", number, len(values)) + b"".join(packed(item) for item in values)
