"""Tiny vision models with random weights: whole folders, and what transformers makes of prompts for them."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import AddedToken

from tests.text import vocabularies

MARKS = ("<image>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'video' %}VIDEO{% else %}IMAGE{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 512
_QWEN_PIXELS = {"min_pixels": 28 * 28 * 4, "max_pixels": 28 * 28 * 40}


@dataclass(frozen=True)
class TinyVision:
    """One model: its folder, transformers' own of it, and the words that mark an image in a prompt."""

    name: str
    folder: Path
    model: Any
    processor: Any
    mark: str
    token: int

    def prepared(self, prompt: Sequence[int], images: Sequence[Image.Image]) -> dict[str, Any]:
        """What transformers' model takes for a prompt in which a token marks each image."""
        if not images:
            ids = torch.tensor([list(prompt)])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        given = dict(self.processor(list(images), return_tensors="pt"))
        counts = iter(_COUNTS[self.name](self, given))
        tokens = [token for each in prompt for token in ([each] * next(counts) if each == self.token else [each])]
        ids = torch.tensor([tokens])
        kinds = {"mm_token_type_ids": (ids == self.token).int()} if "qwen" in self.name else {}
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **given, **kinds}

    @torch.inference_mode()
    def greedy(self, prompt: Sequence[int], images: Sequence[Image.Image], count: int = 32) -> list[int]:
        given = self.prepared(prompt, images)
        options = {"max_new_tokens": count, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        found = self.model.generate(**given, **options)
        return [int(token) for token in found[0, given["input_ids"].shape[1] :]]


def picture(height: int, width: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Smooth shapes and noise, so that filters make a difference."""
    generator = np.random.default_rng(seed)
    channels = {"RGB": 3, "RGBA": 4, "L": 1}[mode]
    rows, columns = np.linspace(0, 9, height)[:, None, None], np.linspace(0, 7, width)[None, :, None]
    waves = 128 + 90 * np.sin(rows * (1 + np.arange(channels)) + columns)
    pixels = np.clip(waves + generator.normal(0, 20, (height, width, channels)), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels.squeeze(-1) if channels == 1 else pixels, mode)


def as_bytes(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    stored = io.BytesIO()
    image.save(stored, form, **options)
    return stored.getvalue()


def make_vision(name: str, folder: Path) -> TinyVision:
    torch.manual_seed(11)
    tokenizer = vocabularies.byte_level()
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=True) for mark in MARKS])
    ids = {mark: tokenizer.token_to_id(mark) for mark in MARKS}
    size = -(-tokenizer.get_vocab_size(with_added_tokens=True) // 8) * 8
    model, processor, mark = _MAKERS[name](ids, size)
    model = model.eval()
    with torch.no_grad():
        for parameter in model.parameters():  # transformers' own begin so small that every prompt has one answer
            parameter.mul_(3.0) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    template = TEMPLATE.replace("IMAGE", mark).replace("VIDEO", "<|vision_start|><|video_pad|><|vision_end|>")
    vocabularies.write_folder(folder, tokenizer, eos_token="<|im_end|>", chat_template=template)
    settings = {key: value for key, value in processor.to_dict().items() if value is not None}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, default=str))
    token = ids["<|image_pad|>"] if "qwen" in name else ids["<image>"]
    return TinyVision(name, folder, model, processor, mark, token)


def _text(size: int, **more: Any) -> dict[str, Any]:
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    positions = {"num_key_value_heads": 2, "vocab_size": size, "max_position_embeddings": CONTEXT}
    return {**shape, **positions, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 2, **more}


def _llava(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = transformers.CLIPVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, image_size=28, patch_size=14
    )
    text = transformers.LlamaConfig(**_text(size))
    config = transformers.LlavaConfig(vision_config=tower, text_config=text, image_token_index=ids["<image>"])
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    return transformers.LlavaForConditionalGeneration(config), processor, "<image>"


_MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}


def _qwen_ids(ids: dict[str, int]) -> dict[str, int]:
    return {
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }


def _qwen2_vl(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = {"depth": 2, "embed_dim": 32, "num_heads": 2, "hidden_size": 32, "patch_size": 14, "mlp_ratio": 2}
    config = transformers.Qwen2VLConfig(text_config=_text(size, **_MROPE), vision_config=tower, **_qwen_ids(ids))
    model = transformers.Qwen2VLForConditionalGeneration(config)
    return model, transformers.Qwen2VLImageProcessor(**_QWEN_PIXELS), "<|vision_start|><|image_pad|><|vision_end|>"


def _qwen2_5_vl(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = {"depth": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 32}
    tower |= {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]}  # type: ignore[dict-item]
    config = transformers.Qwen2_5_VLConfig(text_config=_text(size, **_MROPE), vision_config=tower, **_qwen_ids(ids))
    model = transformers.Qwen2_5_VLForConditionalGeneration(config)
    return model, transformers.Qwen2VLImageProcessor(**_QWEN_PIXELS), "<|vision_start|><|image_pad|><|vision_end|>"


_MAKERS: dict[str, Callable[[dict[str, int], int], tuple[Any, Any, str]]] = {
    "llava": _llava,
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
}


def _squares(tiny: TinyVision, given: dict[str, Any]) -> list[int]:
    return [int(count) for count in given["image_grid_thw"].prod(1) // 4]


_COUNTS: dict[str, Callable[[TinyVision, dict[str, Any]], list[int]]] = {
    "llava": lambda tiny, given: [4] * len(given["pixel_values"]),
    "qwen2_vl": _squares,
    "qwen2_5_vl": _squares,
}
FAMILIES = tuple(_MAKERS)
