"""OpenAI's Whisper checkpoints as folders that quire, transformers and CTranslate2 read.

    python benchmarks/peers/convert_whisper.py tiny.en.pt FOLDER

It needs torch, safetensors and the package openai-whisper, whose assets hold the vocabulary. A checkpoint is a pickle:
it is read here, with nothing but tensors allowed in it, and never inside quire.
"""

import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file
from whisper.tokenizer import get_tokenizer

_SAMPLING_RATE, _HOP, _WINDOW, _SECONDS = 16_000, 160, 400, 30
_MAX_INITIAL_TIMESTAMP = 50
_RENAMED = [
    (r"positional_embedding$", "embed_positions.weight"),
    (r"token_embedding\.", "embed_tokens."),
    (r"blocks\.", "layers."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"\.attn\.", ".self_attn."),
    (r"\.query\.", ".q_proj."),
    (r"\.key\.", ".k_proj."),
    (r"\.value\.", ".v_proj."),
    (r"\.out\.", ".out_proj."),
    (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."),
    (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"encoder\.ln_post\.", "encoder.layer_norm."),
    (r"decoder\.ln\.", "decoder.layer_norm."),
]


def main(source: Path, folder: Path) -> None:
    checkpoint = torch.load(source, map_location="cpu", weights_only=True)
    dims = checkpoint["dims"]
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {_renamed(name): tensor.contiguous() for name, tensor in checkpoint["model_state_dict"].items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    dtype = str(tensors["model.decoder.embed_tokens.weight"].dtype).removeprefix("torch.")
    multilingual = dims["n_vocab"] >= 51865
    tokenizer = get_tokenizer(multilingual, num_languages=dims["n_vocab"] - 51765 - multilingual)
    _write(folder / "config.json", _config(dims, tokenizer, dtype))
    _write(folder / "generation_config.json", _generation(tokenizer, multilingual))
    _write(folder / "tokenizer.json", _tokenizer(tokenizer))
    _write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "WhisperTokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    )
    _write(
        folder / "preprocessor_config.json",
        {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": dims["n_mels"],
            "sampling_rate": _SAMPLING_RATE,
            "hop_length": _HOP,
            "n_fft": _WINDOW,
            "chunk_length": _SECONDS,
            "n_samples": _SECONDS * _SAMPLING_RATE,
            "nb_max_frames": _SECONDS * _SAMPLING_RATE // _HOP,
            "padding_value": 0.0,
            "padding_side": "right",
            "return_attention_mask": False,
        },
    )


def _renamed(name: str) -> str:
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return f"model.{name}"


def _config(dims: dict[str, int], tokenizer: object, dtype: str) -> dict[str, object]:
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "torch_dtype": dtype,
        "vocab_size": dims["n_vocab"],
        "num_mel_bins": dims["n_mels"],
        "d_model": dims["n_audio_state"],
        "encoder_layers": dims["n_audio_layer"],
        "encoder_attention_heads": dims["n_audio_head"],
        "encoder_ffn_dim": 4 * dims["n_audio_state"],
        "decoder_layers": dims["n_text_layer"],
        "decoder_attention_heads": dims["n_text_head"],
        "decoder_ffn_dim": 4 * dims["n_text_state"],
        "max_source_positions": dims["n_audio_ctx"],
        "max_target_positions": dims["n_text_ctx"],
        "activation_function": "gelu",
        "bos_token_id": tokenizer.eot,
        "eos_token_id": tokenizer.eot,
        "pad_token_id": tokenizer.eot,
        "decoder_start_token_id": tokenizer.sot,
    }


def _generation(tokenizer: object, multilingual: bool) -> dict[str, object]:
    never = (tokenizer.transcribe, tokenizer.translate, tokenizer.sot, tokenizer.sot_prev, tokenizer.sot_lm)
    suppressed = sorted({*tokenizer.non_speech_tokens, *never, tokenizer.no_speech})
    found = {
        "bos_token_id": tokenizer.eot,
        "eos_token_id": tokenizer.eot,
        "pad_token_id": tokenizer.eot,
        "decoder_start_token_id": tokenizer.sot,
        "prev_sot_token_id": tokenizer.sot_prev,
        "no_timestamps_token_id": tokenizer.no_timestamps,
        "max_initial_timestamp_index": _MAX_INITIAL_TIMESTAMP,
        "suppress_tokens": suppressed,
        "begin_suppress_tokens": [*tokenizer.encode(" "), tokenizer.eot],
        "is_multilingual": multilingual,
        "return_timestamps": False,
    }
    if multilingual:
        codes = zip(tokenizer.all_language_codes, tokenizer.all_language_tokens, strict=True)
        found["lang_to_id"] = {f"<|{code}|>": token for code, token in codes}
        found["task_to_id"] = {"transcribe": tokenizer.transcribe, "translate": tokenizer.translate}
    return found


def _tokenizer(tokenizer: object) -> dict[str, object]:
    """A byte-level BPE; merges follow from ranks: a token is made of the two that its bytes come to without it."""
    ranks: dict[bytes, int] = tokenizer.encoding._mergeable_ranks
    letters = _letters()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    ordered = sorted(ranks.items(), key=lambda item: item[1])
    merges = [[spelled(part) for part in _parts(token, rank, ranks)] for token, rank in ordered if len(token) > 1]
    added = [
        {
            "id": number,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": not re.fullmatch(r"<\|\d+\.\d\d\|>", content),
        }
        for content, number in sorted(tokenizer.encoding._special_tokens.items(), key=lambda item: item[1])
    ]
    bytes_alone = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": bytes_alone,
        "post_processor": bytes_alone,
        "decoder": bytes_alone,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {spelled(token): rank for token, rank in ordered},
            "merges": merges,
        },
    }


def _parts(token: bytes, below: int, ranks: dict[bytes, int]) -> list[bytes]:
    parts = [bytes([byte]) for byte in token]
    while True:
        pairs = [(ranks.get(left + right, below), place) for place, (left, right) in enumerate(pairwise(parts))]
        rank, place = min(pairs)
        if rank >= below:
            return parts
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


def _letters() -> dict[int, str]:
    """GPT-2's spelling of bytes: those that print stand for themselves, the others come after all of them."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {byte: chr(byte) for byte in shown}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + len(letters) - len(shown)))
    return letters


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
