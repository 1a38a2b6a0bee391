"""Tiny Whisper models with random weights: windows of one second, letters for tokens."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from quire.core.encoder_input import EncoderInput
from quire.multimodal.spectrogram import Spectrogram

BINS, POSITIONS = 16, 50
FRAMES = 2 * POSITIONS
END, START = 256, 257
LANGUAGES = {"en": 258, "de": 259}
TRANSLATE, TRANSCRIBE, START_OF_LM, PREVIOUS, NO_SPEECH, NO_TIMESTAMPS = range(260, 266)
FIRST_TIME = NO_TIMESTAMPS + 1
VOCABULARY = FIRST_TIME + POSITIONS + 1
SPECIAL = (
    *("endoftext", "startoftranscript", "en", "de"),
    *("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"),
)
SUPPRESSED = (0, 1, TRANSLATE, TRANSCRIBE, START, PREVIOUS, START_OF_LM, NO_SPEECH)


def make_whisper(folder: Path, *, multilingual: bool = True, seed: int = 0, **changes: Any) -> Any:
    """Write a model, and return it as transformers has it."""
    torch.manual_seed(seed)
    sizes = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 3, "num_mel_bins": BINS}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 4}
    wide = {"encoder_ffn_dim": 80, "decoder_ffn_dim": 96}
    config = WhisperConfig(
        **{**sizes, **heads, **wide, "vocab_size": VOCABULARY, **changes},
        max_source_positions=POSITIONS,
        max_target_positions=64,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), END),
        decoder_start_token_id=START,
    )
    model = WhisperForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.15)
    model.save_pretrained(folder)
    write_tokenizer(folder, multilingual=multilingual)
    return model


def write_tokenizer(folder: Path, *, multilingual: bool = True) -> None:
    names = [f"<|{name}|>" for name in SPECIAL]
    bytes_alone = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": END + place, "content": name, "special": True, **flags} for place, name in enumerate(names)
        ],
        "pre_tokenizer": bytes_alone,
        "decoder": bytes_alone,
        "model": {"type": "BPE", "vocab": {spelled(byte): byte for byte in range(256)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {
        "is_multilingual": multilingual,
        "suppress_tokens": list(SUPPRESSED),
        "begin_suppress_tokens": [32, END],
        "no_timestamps_token_id": NO_TIMESTAMPS,
        "max_initial_timestamp_index": 20,
    }
    (folder / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": END}))


def spelled(byte: int) -> str:
    """GPT-2's letters for bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [each for each in range(256) if each not in printable].index(byte))


def random_sound(seed: int, frames: int = FRAMES) -> Spectrogram:
    values = torch.randn(frames, BINS, generator=torch.Generator().manual_seed(seed))
    return Spectrogram(values.numpy().tobytes(), BINS, frames / 100)


def window(seed: int) -> EncoderInput:
    return random_sound(seed).window(0, FRAMES, FRAMES)


def features(source: EncoderInput) -> torch.Tensor:
    """As transformers takes them: [1, bins, frames]."""
    values = torch.frombuffer(bytearray(source.values), dtype=torch.float32)
    return values.view(source.shape).t()[None]
