"""Phi-3.5-vision in small, slow steps: transformers has no such model, since its code lies in its checkpoint.

Written from what that code does, of parts that transformers has: its CLIP tower and its Phi-3. All between is loops.
"""

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from tokenizers import normalizers, processors
from torch import Tensor, nn

MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
"""As the checkpoint's: it puts texts together, and fails at contents in parts."""


class Phi3Pictures:
    """Squares of `side` pixels, at most `most` of an image; every one becomes `each` × `each` tokens."""

    def __init__(self, side: int, most: int, each: int) -> None:
        self.side, self.most, self.each = side, most, each

    def to_dict(self) -> dict[str, Any]:
        return {
            "image_processor_type": "Phi3VImageProcessor",
            "num_crops": self.most,
            "num_img_tokens": self.each**2,
            "image_mean": list(MEAN),
            "image_std": list(DEVIATION),
        }

    def __call__(self, images: Sequence[Image.Image], return_tensors: str) -> dict[str, Any]:
        assert return_tensors == "pt"
        made = [self.padded(image) for image in images]
        cut = [self._cut(each) for each in made]
        return {
            "pixel_values": torch.cat([crops for crops, _ in cut]),
            "wholes": torch.cat([self.whole(each) for each in made]),
            "tiles": [tiles for _, tiles in cut],
        }

    def padded(self, image: Image.Image) -> Tensor:
        """float32 [3, height, width], both multiples of the side."""
        image = image.convert("RGB")
        stands = image.size[0] < image.size[1]
        if stands:  # mirrored along its main diagonal
            image = Image.fromarray(np.array(image).swapaxes(0, 1))
        width, height = image.size
        ratio = width / height
        scale = 1
        while scale * np.ceil(scale / ratio) <= self.most:
            scale += 1
        scale -= 1
        new_width = int(scale * self.side)
        new_height = int(new_width / ratio)
        small = np.array(image.resize((new_width, new_height), Image.Resampling.BILINEAR))
        target = int(np.ceil(new_height / self.side) * self.side)
        above = int((target - new_height) / 2)
        filled = np.full((target, new_width, 3), 255, dtype=np.uint8)
        for row in range(new_height):
            filled[above + row] = small[row]
        if stands:
            filled = filled.swapaxes(0, 1)
        numbers = torch.from_numpy(np.ascontiguousarray(filled)).permute(2, 0, 1) / 255
        return torch.stack([(numbers[c] - MEAN[c]) / DEVIATION[c] for c in range(3)])

    def whole(self, padded: Tensor) -> Tensor:
        """All of it in one square, [1, 3, side, side]."""
        return nn.functional.interpolate(padded[None].float(), size=(self.side, self.side), mode="bicubic")

    def _cut(self, padded: Tensor) -> tuple[Tensor, tuple[int, int]]:
        rows, columns = padded.shape[1] // self.side, padded.shape[2] // self.side
        crops = []
        for row in range(rows):
            for column in range(columns):
                top, left = row * self.side, column * self.side
                crops.append(padded[:, top : top + self.side, left : left + self.side])
        return torch.stack(crops), (rows, columns)

    def num_tokens(self, width: int, height: int) -> int:
        """As the original counts them from a size alone."""
        stands = width < height
        if stands:
            width, height = height, width
        ratio = width / height
        scale = max(count for count in range(1, self.most + 1) if count * math.ceil(count / ratio) <= self.most)
        columns, rows = scale, math.ceil(int(scale * self.side / ratio) / self.side)
        if stands:
            rows, columns = columns, rows
        return (rows * columns + 1) * self.each**2 + 1 + (rows + 1) * self.each


class Phi3Vision(nn.Module):
    """The whole model. Its tensors have the names of published checkpoints in files alone."""

    def __init__(self, tower: transformers.CLIPVisionConfig, text: transformers.Phi3Config, image_token: int) -> None:
        super().__init__()
        self.tower = transformers.CLIPVisionModel(tower)
        self.text = transformers.Phi3ForCausalLM(text)
        size = 4 * tower.hidden_size
        self.up, self.down = nn.Linear(size, text.hidden_size), nn.Linear(text.hidden_size, text.hidden_size)
        self.sub_gn = nn.Parameter(torch.randn(1, 1, 1, size))
        self.glb_gn = nn.Parameter(torch.randn(1, 1, size))
        self._image_token = image_token

    def forward(self, input_ids: Tensor, **given: Any) -> Any:
        return SimpleNamespace(logits=self._logits(input_ids, self.images(given)))

    def generate(self, input_ids: Tensor, max_new_tokens: int, **given: Any) -> Tensor:
        """The likeliest token again and again, everything computed anew each time."""
        images = self.images(given)
        for _ in range(max_new_tokens):
            likeliest = self._logits(input_ids, images)[:, -1].argmax(-1, keepdim=True)
            input_ids = torch.cat((input_ids, likeliest), dim=1)
        return input_ids

    def _logits(self, input_ids: Tensor, images: list[Tensor]) -> Tensor:
        embeddings = self.text.get_input_embeddings()(input_ids)
        coming = iter([vector for image in images for vector in image])
        for place, token in enumerate(input_ids[0].tolist()):
            if token == self._image_token:
                embeddings[0, place] = next(coming)
        assert next(coming, None) is None, "an image has another number of tokens"
        logits: Tensor = self.text(inputs_embeds=embeddings, use_cache=False).logits
        return logits

    def images(self, given: dict[str, Any]) -> list[Tensor]:
        """Of each image what takes its tokens' place."""
        if "pixel_values" not in given:
            return []
        found, start = [], 0
        for whole, (rows, columns) in zip(given["wholes"], given["tiles"], strict=True):
            crops = given["pixel_values"][start : start + rows * columns]
            start += rows * columns
            found.append(self._image(crops, whole, rows, columns))
        return found

    def _image(self, crops: Tensor, whole: Tensor, rows: int, columns: int) -> Tensor:
        """The crops' vectors line by line over the whole picture, one more behind each line, one between them and the
        whole's, which have lines too."""
        squares = [self._squares(crop) for crop in crops]
        side = len(squares[0])
        line: list[Tensor] = []
        for row in range(rows * side):
            for column in range(columns * side):
                crop = squares[row // side * columns + column // side]
                line.append(crop[row % side][column % side])
            line.append(self.sub_gn[0, 0, 0])
        line.append(self.glb_gn[0, 0])
        for of_row in self._squares(whole):
            line += [*of_row, self.sub_gn[0, 0, 0]]
        return torch.stack([self.down(nn.functional.gelu(self.up(vector))) for vector in line])

    def _squares(self, crop: Tensor) -> list[list[Tensor]]:
        """By row and column of one picture: four neighbouring patches, upper ones first, without the class token."""
        patches = self.tower(crop[None], output_hidden_states=True).hidden_states[-2][0, 1:]
        side = math.isqrt(len(patches))
        grid = [[patches[row * side + column] for column in range(side)] for row in range(side)]
        return [
            [
                torch.cat((grid[row][column], grid[row][column + 1], grid[row + 1][column], grid[row + 1][column + 1]))
                for column in range(0, side, 2)
            ]
            for row in range(0, side, 2)
        ]

    def named_as_published(self) -> dict[str, Tensor]:
        start = "model.vision_embed_tokens."
        found = dict(self.text.state_dict())
        for name, tensor in self.tower.state_dict().items():
            found[f"{start}img_processor.vision_model.{name.removeprefix('vision_model.')}"] = tensor
        for place, layer in (("0", self.up), ("2", self.down)):
            for name, tensor in layer.state_dict().items():
                found[f"{start}img_projection.{place}.{name}"] = tensor
        found |= {f"{start}sub_GN": self.sub_gn, f"{start}glb_GN": self.glb_gn}
        return {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.named_as_published(), folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(self._config()))

    def _config(self) -> dict[str, Any]:
        """As published, and a tower of another size."""
        text, tower = self.text.config, self.tower.config
        names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
        names += ("vocab_size", "max_position_embeddings", "original_max_position_embeddings", "rms_norm_eps")
        names += ("hidden_act", "tie_word_embeddings", "bos_token_id", "eos_token_id", "sliding_window")
        sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size")
        scaling = text.rope_parameters
        return {
            "architectures": ["Phi3VForCausalLM"],
            "model_type": "phi3_v",
            **{name: getattr(text, name) for name in names},
            "rope_theta": scaling["rope_theta"],
            "rope_scaling": {
                "type": "su",
                "short_factor": scaling["short_factor"],
                "long_factor": scaling["long_factor"],
            },
            "img_processor": {
                "image_dim_out": tower.hidden_size,
                "model_name": "openai/clip-vit-large-patch14-336",
                "name": "clip_vision_model",
                "num_img_tokens": (tower.image_size // tower.patch_size // 2) ** 2,
            },
            "embd_layer": {
                "embedding_cls": "image",
                "hd_transform_order": "sub_glb",
                "projection_cls": "mlp",
                "use_hd_transform": True,
                "with_learnable_separator": True,
            },
            "vision_config": {name: getattr(tower, name) for name in (*sizes, "patch_size")},
        }


def beginning(model: Path, folder: Path, template: str) -> Path:
    """The model with a tokenizer as Phi's: every text gets a token and a sign for a space before it, and the mark of
    images swallows what space is behind it, unless the texts around it are tokenized by themselves."""
    shutil.copytree(model, folder)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    begin = ("<|im_start|>", tokenizer.token_to_id("<|im_start|>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[begin])
    tokenizer.normalizer = normalizers.Prepend("_")
    saved = json.loads(tokenizer.to_str())
    for token in saved["added_tokens"]:
        token["rstrip"] = token["content"] == "<|image|>"
    (folder / "tokenizer.json").write_text(json.dumps(saved))
    about = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(about | {"chat_template": template}))
    return folder
