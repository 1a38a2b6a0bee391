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

MARKS = (
    *("<image>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "[IMG]", "[IMG_BREAK]"),
    *("[IMG_END]", "<IMG_CONTEXT>", "<img>", "</img>", "<fake_token_around_image>", "<global-img>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'video' %}VIDEO{% else %}IMAGE{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 512
_QWEN_PIXELS = {"min_pixels": 28 * 28 * 4, "max_pixels": 28 * 28 * 40}


@dataclass(frozen=True)
class Clip:
    """A video as a model should read it: the frames that are read, and the seconds at which they stand."""

    frames: list[Image.Image]
    times: list[float]
    seconds: float
    """From one moment to the next."""


@dataclass(frozen=True)
class TinyVision:
    """One model: its folder, transformers' own of it, and the words that mark an image in a prompt."""

    name: str
    folder: Path
    model: Any
    processor: Any
    mark: str
    token: int
    tokenizer: Any

    def prepared(
        self, prompt: Sequence[int], images: Sequence[Image.Image], videos: Sequence[Clip] = ()
    ) -> dict[str, Any]:
        """What transformers' model takes for a prompt in which a token marks each image: its processors write out in
        text what an image becomes."""
        text, given = self.tokenizer.decode(list(prompt), skip_special_tokens=False), {}
        if images:
            nested = [list(images)] if "idefics" in self.name else list(images)
            given = dict(self.processor(nested, return_tensors="pt"))
            text = _filled(text, self.tokenizer.id_to_token(self.token), _WRITTEN[self.name](given))
        if videos:
            seen = _VIDEOS[self.name](self.processor, videos)
            text = _filled(text, seen.pop("mark"), seen.pop("written"))
            given |= seen
        ids = torch.tensor([self.tokenizer.encode(text, add_special_tokens=False).ids])
        if "qwen" in self.name and (images or videos):
            given["mm_token_type_ids"] = (ids == self.token).int() + 2 * (ids == self.video_token).int()
        for name in ("rows", "cols", "num_patches"):
            given.pop(name, None)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **given}

    @property
    def video_token(self) -> int:
        return int(self.tokenizer.token_to_id("<|video_pad|>"))

    @torch.inference_mode()
    def greedy(
        self, prompt: Sequence[int], images: Sequence[Image.Image], count: int = 32, videos: Sequence[Clip] = ()
    ) -> list[int]:
        given = self.prepared(prompt, images, videos)
        options = {"max_new_tokens": count, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        found = self.model.generate(**given, **options)
        return [int(token) for token in found[0, given["input_ids"].shape[1] :]]


def _filled(text: str, mark: str, written: Sequence[str]) -> str:
    """The text with what each mark stands for in its place."""
    parts = text.split(mark)
    return "".join(each for pair in zip(parts, [*written, ""], strict=True) for each in pair)


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
    token = ids["<|image_pad|>"] if "qwen" in name else ids[mark]
    return TinyVision(name, folder, model, processor, mark, token, tokenizer)


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


def _pixtral(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = transformers.PixtralVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14
    )
    config = transformers.LlavaConfig(
        vision_config=tower,
        text_config=transformers.MistralConfig(**_text(size, sliding_window=None)),
        image_token_index=ids["[IMG]"],
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    processor = transformers.PixtralImageProcessor(patch_size=14, size={"longest_edge": 80})
    return transformers.LlavaForConditionalGeneration(config), processor, "[IMG]"


def _internvl(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.InternVLConfig(
        vision_config={**tower, "image_size": [28, 28], "patch_size": [7, 7]},
        text_config=transformers.Qwen2Config(**_text(size)),
        image_token_id=ids["<IMG_CONTEXT>"],
        tie_word_embeddings=False,
    )
    processor = transformers.GotOcr2ImageProcessor(
        size={"height": 28, "width": 28}, crop_to_patches=True, max_patches=6, image_mean=[0.4] * 3, image_std=[0.3] * 3
    )
    return transformers.InternVLForConditionalGeneration(config), processor, "<IMG_CONTEXT>"


def _idefics3(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.Idefics3Config(
        vision_config={**tower, "image_size": 42, "patch_size": 7},
        text_config=transformers.LlamaConfig(**_text(size)),
        image_token_id=ids["<image>"],
        scale_factor=3,
        tie_word_embeddings=False,
    )
    processor = transformers.Idefics3ImageProcessor(
        size={"longest_edge": 3 * 42}, max_image_size={"longest_edge": 42}, return_row_col_info=True
    )
    return transformers.Idefics3ForConditionalGeneration(config), processor, "<image>"


_MAKERS: dict[str, Callable[[dict[str, int], int], tuple[Any, Any, str]]] = {
    "llava": _llava,
    "pixtral": _pixtral,
    "internvl": _internvl,
    "idefics3": _idefics3,
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
}


def _squares(given: dict[str, Any]) -> list[str]:
    return ["<|image_pad|>" * int(count) for count in given["image_grid_thw"].prod(1) // 4]


def _rows(given: dict[str, Any]) -> list[str]:
    found = []
    for height, width in given["image_sizes"]:
        lines = ["[IMG]" * (int(width) // 14)] * (int(height) // 14)
        found.append("[IMG_BREAK]".join(lines) + "[IMG_END]")
    return found


def _places(given: dict[str, Any]) -> list[str]:
    around, each = "<fake_token_around_image>", "<image>" * 4
    found = []
    for rows, columns in zip(given["rows"][0], given["cols"][0], strict=True):
        lines = [
            "".join(f"{around}<row_{row + 1}_col_{column + 1}>{each}" for column in range(columns)) + "\n"
            for row in range(rows)
        ]
        found.append("".join(lines) + ("\n" if rows else "") + f"{around}<global-img>{each}{around}")
    return found


_WRITTEN: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "llava": lambda given: ["<image>" * 4] * len(given["pixel_values"]),
    "pixtral": _rows,
    "internvl": lambda given: [f"<img>{'<IMG_CONTEXT>' * 4 * int(count)}</img>" for count in given["num_patches"]],
    "idefics3": _places,
    "qwen2_vl": _squares,
    "qwen2_5_vl": _squares,
}


def _moments(processor: Any, clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
    """Qwen's patches of a video, and its grid, of what its image processor makes of each frame: that repeats a frame
    to fill a moment."""
    seen = [
        processor([frame], return_tensors="pt") for frame in clip.frames + clip.frames[-1:] * (len(clip.frames) % 2)
    ]
    size = processor.patch_size
    cut = [each["pixel_values"].view(-1, 3, 2, size, size) for each in seen]
    pairs = [
        torch.stack((first[:, :, 0], second[:, :, 1]), dim=2) for first, second in zip(cut[::2], cut[1::2], strict=True)
    ]
    _, rows, columns = seen[0]["image_grid_thw"][0].tolist()
    return torch.cat(pairs).flatten(1), torch.tensor([len(pairs), rows, columns])


def _qwen_videos(processor: Any, videos: Sequence[Clip]) -> dict[str, Any]:
    found = [_moments(processor, clip) for clip in videos]
    grids = torch.stack([grid for _, grid in found])
    return {
        "mark": "<|video_pad|>",
        "written": ["<|video_pad|>" * int(count) for count in grids.prod(1) // 4],
        "pixel_values_videos": torch.cat([patches for patches, _ in found]),
        "video_grid_thw": grids,
        "second_per_grid_ts": torch.tensor([clip.seconds for clip in videos]),
    }


_VIDEOS: dict[str, Callable[[Any, Sequence[Clip]], dict[str, Any]]] = {
    "qwen2_vl": lambda processor, videos: {
        name: value for name, value in _qwen_videos(processor, videos).items() if name != "second_per_grid_ts"
    },
    "qwen2_5_vl": _qwen_videos,
}
FAMILIES = tuple(_MAKERS)
VIDEO_FAMILIES = tuple(_VIDEOS)
