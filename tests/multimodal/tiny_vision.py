"""Tiny vision models with random weights: whole folders, and what transformers makes of prompts for them."""

import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import AddedToken

from tests.multimodal.llama4_pictures import Llama4Pictures
from tests.multimodal.phi3_vision import Phi3Pictures, Phi3Vision
from tests.text import vocabularies

MARKS = (
    *(
        "<start_of_image>",
        "<end_of_image>",
        "<image_soft_token>",
        "<image>",
        "<video>",
        "<|image_pad|>",
        "<|video_pad|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "[IMG]",
        "[IMG_BREAK]",
    ),
    *("[IMG_END]", "<IMG_CONTEXT>", "<img>", "</img>", "<fake_token_around_image>", "<global-img>"),
    *("<|image_start|>", "<|image_end|>", "<|image|>", "<|patch|>", "<|tile_x_separator|>", "<|tile_y_separator|>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'video' %}VIDEO{% else %}IMAGE{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 512
NESTED = ("idefics3", "llava_onevision")
"""Whose processors take the images of each prompt together."""
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
            nested = [list(images)] if self.name in NESTED else list(images)
            given = dict(self.processor(nested, return_tensors="pt"))
            text = _filled(text, self.tokenizer.id_to_token(self.token), _WRITTEN[self.name](given))
        if videos:
            seen = _VIDEOS[self.name](self.processor, videos)
            text = _filled(text, seen.pop("mark"), seen.pop("written"))
            given |= seen
        ids = torch.tensor([self.tokenizer.encode(text, add_special_tokens=False).ids])
        if "qwen" in self.name and (images or videos):
            given["mm_token_type_ids"] = (ids == self.token).int() + 2 * (ids == self.video_token).int()
        if self.name == "gemma3":
            given["token_type_ids"] = (ids == self.tokenizer.token_to_id("<image_soft_token>")).int()
        for name in ("rows", "cols", "num_patches", "num_crops", "aspect_ratios"):
            given.pop(name, None)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **given}

    def prompt(self, count: int) -> list[int]:
        """A question about so many images."""
        text = "".join(f"Here is number {number}: {self.mark} and " for number in range(count)) + "what is it?"
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    @property
    def video_mark(self) -> str:
        return "<|vision_start|><|video_pad|><|vision_end|>" if "qwen" in self.name else "<video>"

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
            if not parameter.any():  # Gemma 3's projection, with which all images would be alike
                parameter.normal_(0.0, 0.5)
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


def _gemma3(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = _text(size, num_hidden_layers=3, head_dim=8, sliding_window=16, query_pre_attn_scalar=8)
    text["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"]
    config = transformers.Gemma3Config(
        vision_config={**tower, "image_size": 42, "patch_size": 7},
        text_config=transformers.Gemma3TextConfig(**text),
        mm_tokens_per_image=9,
        boi_token_index=ids["<start_of_image>"],
        eoi_token_index=ids["<end_of_image>"],
        image_token_index=ids["<image_soft_token>"],
        tie_word_embeddings=False,
    )
    processor = transformers.Gemma3ImageProcessor(size={"height": 42, "width": 42})
    return transformers.Gemma3ForConditionalGeneration(config), processor, "<start_of_image>"


def _llama4(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    tower |= {"image_size": 28, "patch_size": 7, "vision_output_dim": 40}
    tower |= {"projector_input_dim": 40, "projector_output_dim": 40}
    text = _text(size, num_hidden_layers=4, head_dim=8, num_local_experts=4, num_experts_per_tok=1)
    text |= {"intermediate_size_mlp": 40, "interleave_moe_layer_step": 2, "attention_chunk_size": 48}
    config = transformers.Llama4Config(
        vision_config={**tower, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        text_config=text,
        boi_token_index=ids["<|image_start|>"],
        eoi_token_index=ids["<|image_end|>"],
        image_token_index=ids["<|patch|>"],
    )
    return transformers.Llama4ForConditionalGeneration(config), Llama4Pictures(28, 6), "<|image|>"


def _llava_next(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = transformers.CLIPVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, image_size=28, patch_size=7
    )
    sizes = [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]
    config = transformers.LlavaNextConfig(
        vision_config=tower,
        text_config=transformers.MistralConfig(**_text(size, sliding_window=None)),
        image_token_index=ids["<image>"],
        image_grid_pinpoints=sizes,
        tie_word_embeddings=False,
    )
    processor = transformers.LlavaNextImageProcessor(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_grid_pinpoints=sizes
    )
    return transformers.LlavaNextForConditionalGeneration(config), processor, "<image>"


def _llava_onevision(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    tower = transformers.SiglipVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, image_size=27, patch_size=9
    )
    sizes = [[27 * down, 27 * across] for down in range(1, 4) for across in range(1, 4)]
    config = transformers.LlavaOnevisionConfig(
        vision_config=tower,
        text_config=transformers.Qwen2Config(**_text(size)),
        image_token_index=ids["<image>"],
        video_token_index=ids["<video>"],
        image_grid_pinpoints=sizes,
        vision_aspect_ratio="anyres_max_2",
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        tie_word_embeddings=False,
    )
    processor = transformers.LlavaOnevisionImageProcessor(
        size={"height": 27, "width": 27}, image_grid_pinpoints=sizes, do_pad=True
    )
    return transformers.LlavaOnevisionForConditionalGeneration(config), processor, "<image>"


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


def _qwen3_vl(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    config = transformers.Qwen3VLConfig(**_qwen3_parts(size), tie_word_embeddings=False, **_qwen_ids(ids))
    return transformers.Qwen3VLForConditionalGeneration(config), *_qwen3_processor()


def _qwen3_vl_moe(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    parts = _qwen3_parts(size, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, mlp_only_layers=[1])
    config = transformers.Qwen3VLMoeConfig(**parts, tie_word_embeddings=False, **_qwen_ids(ids))
    return transformers.Qwen3VLMoeForConditionalGeneration(config), *_qwen3_processor()


def _qwen3_parts(size: int, **more: Any) -> dict[str, Any]:
    tower = {"depth": 4, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 32}
    tower |= {"patch_size": 8, "num_position_embeddings": 25, "deepstack_visual_indexes": [0, 2]}  # type: ignore[dict-item]
    rope = {**_MROPE["rope_parameters"], "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    text = _text(size, rope_parameters=rope, num_hidden_layers=4, head_dim=8, **more)
    return {"text_config": text, "vision_config": tower}


def _qwen3_processor() -> tuple[Any, str]:
    sides = {"min_pixels": 16 * 16 * 4, "max_pixels": 16 * 16 * 40, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    processor = transformers.Qwen2VLImageProcessor(patch_size=8, **sides)
    return processor, "<|vision_start|><|image_pad|><|vision_end|>"


def _phi3_v(ids: dict[str, int], size: int) -> tuple[Any, Any, str]:
    """Prompts with images are beyond the length at which its angles change, those without are not."""
    tower = transformers.CLIPVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, image_size=28, patch_size=7
    )
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.2, 1.5],
        "long_factor": [1.5, 2.0, 4.0, 8.0],
    }
    text = transformers.Phi3Config(
        **_text(size, num_key_value_heads=4, sliding_window=None, pad_token_id=0),
        rope_parameters=rope,
        original_max_position_embeddings=48,
    )
    model = Phi3Vision(tower, text, ids["<|image|>"])
    return model, Phi3Pictures(28, 5, 2), "<|image|>"


_MAKERS: dict[str, Callable[[dict[str, int], int], tuple[Any, Any, str]]] = {
    "llava": _llava,
    "llava_next": _llava_next,
    "llava_onevision": _llava_onevision,
    "gemma3": _gemma3,
    "llama4": _llama4,
    "pixtral": _pixtral,
    "internvl": _internvl,
    "idefics3": _idefics3,
    "phi3_v": _phi3_v,
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl_moe,
}


def _anyres(side: int, most: float) -> Callable[[dict[str, Any]], list[str]]:
    def written(given: dict[str, Any]) -> list[str]:
        found = []
        for place, (height, width) in enumerate(given["image_sizes"].tolist()):
            if "batch_num_images" in given and len(given["image_sizes"]) > 1:
                found.append("<image>" * (side**2 + 1))
                continue
            tiles = len([picture for picture in given["pixel_values"][place] if picture.abs().sum() > 0])
            assert tiles > 1
            found.append("<image>" * _anyres_count(height, width, side, most))
        return found

    return written


def _anyres_count(height: int, width: int, side: int, most: float) -> int:
    """As LLaVA-NeXT's processor counts, on the tiles that transformers chooses."""
    tile = 28 if math.isinf(most) else 27
    sizes = [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]
    if tile == 27:
        sizes = [[27 * down, 27 * across] for down in range(1, 4) for across in range(1, 4)]
    best = transformers.image_processing_utils.select_best_resolution((height, width), sizes)
    rows, columns = best[0] // tile * side, best[1] // tile * side
    if width / height > columns / rows:
        rows -= (rows - int(round(height * columns / width, 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * rows / height, 7))) // 2 * 2
    shrink = math.sqrt(rows * columns / (most * side**2))
    if shrink > 1.1:
        rows, columns = int(rows // shrink), int(columns // shrink)
    return side**2 + rows * (columns + 1)


def _squares(given: dict[str, Any]) -> list[str]:
    return ["<|image_pad|>" * int(count) for count in given["image_grid_thw"].prod(1) // 4]


def _rows(given: dict[str, Any]) -> list[str]:
    found = []
    for height, width in given["image_sizes"]:
        lines = ["[IMG]" * (int(width) // 14)] * (int(height) // 14)
        found.append("[IMG_BREAK]".join(lines) + "[IMG_END]")
    return found


def _tiles(given: dict[str, Any]) -> list[str]:
    each = "<|patch|>" * 4
    found = []
    for rows, columns in given["aspect_ratios"].tolist():
        row = "<|tile_x_separator|>".join([each] * columns) + "<|tile_y_separator|>"
        tiles = row * rows if rows * columns > 1 else ""
        found.append(f"<|image_start|>{tiles}<|image|>{each}<|image_end|>")
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
    "llava_next": _anyres(4, math.inf),
    "llava_onevision": _anyres(3, 2),
    "gemma3": lambda given: (
        [f"\n\n<start_of_image>{'<image_soft_token>' * 9}<end_of_image>\n\n"] * len(given["pixel_values"])
    ),
    "llama4": _tiles,
    "pixtral": _rows,
    "internvl": lambda given: [f"<img>{'<IMG_CONTEXT>' * 4 * int(count)}</img>" for count in given["num_patches"]],
    "idefics3": _places,
    "phi3_v": lambda given: [
        "<|image|>" * ((rows * columns + 1) * 4 + 1 + (rows + 1) * 2) for rows, columns in given["tiles"]
    ],
    "qwen2_vl": _squares,
    "qwen2_5_vl": _squares,
    "qwen3_vl": _squares,
    "qwen3_vl_moe": _squares,
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


def _qwen3_videos(processor: Any, videos: Sequence[Clip]) -> dict[str, Any]:
    """Every moment behind the seconds at which its middle is; its bounds of pixels are those of all frames."""
    bounds = {"min_pixels": processor.size["shortest_edge"], "max_pixels": processor.size["longest_edge"]}
    found = []
    for clip in videos:
        count = len(clip.frames)
        own = type(processor)(
            patch_size=processor.patch_size,
            image_mean=processor.image_mean,
            image_std=processor.image_std,
            **{name: value // count for name, value in bounds.items()},
        )
        found.append(_moments(own, clip))
    written = []
    for clip, (_, grid) in zip(videos, found, strict=True):
        times = clip.times + clip.times[-1:] * (len(clip.times) % 2)
        each = "<|vision_start|>" + "<|video_pad|>" * int(grid[1] * grid[2] // 4) + "<|vision_end|>"
        pairs = zip(times[::2], times[1::2], strict=True)
        written.append("".join(f"<{(first + second) / 2:.1f} seconds>{each}" for first, second in pairs))
    return {
        "mark": "<|video_pad|>",
        "written": written,
        "pixel_values_videos": torch.cat([patches for patches, _ in found]),
        "video_grid_thw": torch.stack([grid for _, grid in found]),
    }


def _onevision_videos(processor: Any, videos: Sequence[Clip]) -> dict[str, Any]:
    """Frames resized to one tile each, in half as many features a side."""
    own = transformers.SiglipImageProcessor(
        size=dict(processor.size), resample=3, image_mean=processor.image_mean, image_std=processor.image_std
    )
    frames = [own(clip.frames, return_tensors="pt")["pixel_values"] for clip in videos]
    return {
        "mark": "<video>",
        "written": ["<video>" * (len(each) * 4 + 1) for each in frames],
        "pixel_values_videos": torch.stack(frames),
    }


_VIDEOS: dict[str, Callable[[Any, Sequence[Clip]], dict[str, Any]]] = {
    "qwen2_vl": lambda processor, videos: {
        name: value for name, value in _qwen_videos(processor, videos).items() if name != "second_per_grid_ts"
    },
    "qwen2_5_vl": _qwen_videos,
    "qwen3_vl": _qwen3_videos,
    "qwen3_vl_moe": _qwen3_videos,
    "llava_onevision": _onevision_videos,
}
FAMILIES = tuple(_MAKERS)
VIDEO_FAMILIES = tuple(_VIDEOS)
