"""All targets, by name."""

from collections.abc import Callable
from pathlib import Path

from tests.fuzz import files, media, wires
from tests.fuzz.target import Target

TARGETS: dict[str, Callable[[Path], Target]] = {
    "gguf": files.gguf,
    "gguf-tokenizer": files.gguf_tokenizer,
    "safetensors": files.safetensors,
    "sentencepiece": files.sentencepiece,
    "tokenizer-json": files.tokenizer_json,
    "tokenizer-config": files.tokenizer_config,
    "chat-templates": wires.templates,
    "http": wires.http,
    "websocket": wires.websocket,
    "bodies": wires.bodies,
    "kv-frames": wires.kv_frames,
    "answers": wires.answers,
    "images": media.images,
    "sounds": media.sounds,
}
"""Each is made with a folder of its own."""
