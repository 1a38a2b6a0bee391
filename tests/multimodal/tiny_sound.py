"""Tiny models that hear, of random weights: transformers' own Qwen2-Audio, and Ultravox put together of its parts.

transformers has no Ultravox: its projector is written here by its published description.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken
from torch import Tensor, nn

from tests.text import vocabularies

MARKS = ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "<|reserved_special_token_0|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% else %}MARK{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TOWER = {"encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48, "d_model": 32}
FAMILIES = ("qwen2_audio", "ultravox")
RATE = 16_000


def speech(seconds: float, seed: int = 0, rate: int = RATE) -> np.ndarray:
    """Tones that move, and noise."""
    generator = np.random.default_rng(seed)
    time = np.arange(int(seconds * rate)) / rate
    waves = 0.4 * np.sin(2 * np.pi * (200 + 150 * seed + 300 * time) * time)
    return (waves + generator.normal(0, 0.05, len(time))).astype(np.float32)


@dataclass(frozen=True)
class TinySound:
    """One model: its folder, and what it should give."""

    name: str
    folder: Path
    model: Any
    features: Any
    token: int
    mark: str
    tokenizer: Any

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], sounds: Sequence[np.ndarray], answer: Sequence[int] = ()) -> Tensor:
        """Of the last token of the prompt and the answer so far."""
        embedded = [self.embeddings(sound) for sound in sounds]
        words = self.model.get_input_embeddings()
        coming = iter(embedded)
        parts = [next(coming) if token == self.token else words(torch.tensor([token])) for token in prompt]
        parts += [words(torch.tensor([token])) for token in answer]
        inputs = torch.cat(parts)[None]
        language = self.model.language_model if self.name == "ultravox" else self.model.model.language_model
        head = language.lm_head if self.name == "ultravox" else self.model.lm_head
        body = language.model if self.name == "ultravox" else language
        found: Tensor = head(body(inputs_embeds=inputs).last_hidden_state[0, -1])
        return found

    def greedy(self, prompt: Sequence[int], sounds: Sequence[np.ndarray], count: int = 32) -> list[int]:
        answer: list[int] = []
        for _ in range(count):
            answer.append(int(self.logits(prompt, sounds, answer).argmax()))
        return answer

    @torch.inference_mode()
    def embeddings(self, sound: np.ndarray) -> Tensor:
        if self.name == "qwen2_audio":
            return self._qwen(sound)
        found: Tensor = self.model.embeddings(self.features, sound)
        return found

    def _qwen(self, sound: np.ndarray) -> Tensor:
        """By transformers' whole model: what it puts in the place of placeholder tokens."""
        given = self.processed(sound)
        count = int(given["num_audio_tokens"])
        kept: list[Tensor] = []
        language = self.model.model.language_model
        handle = language.register_forward_pre_hook(
            lambda _, args, kwargs: kept.append(kwargs["inputs_embeds"]), with_kwargs=True
        )
        ids = torch.full((1, count), self.token)
        self.model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            input_features=given["input_features"],
            feature_attention_mask=given["feature_attention_mask"],
        )
        handle.remove()
        return kept[0][0]

    def processed(self, sound: np.ndarray) -> dict[str, Any]:
        given = self.features(
            sound, sampling_rate=RATE, padding="max_length", return_attention_mask=True, return_tensors="pt"
        )
        frames = int(given["attention_mask"].sum())
        return {
            "input_features": given["input_features"],
            "feature_attention_mask": given["attention_mask"],
            "num_audio_tokens": ((frames - 1) // 2 + 1 - 2) // 2 + 1,
        }


class _Norm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class _Projector(nn.Module):
    def __init__(self, size: int, stacked: int, inner: int, out: int, *, norm_between: bool) -> None:
        super().__init__()
        self.stacked = stacked
        self.ln_pre = _Norm(size * stacked)
        self.linear_1 = nn.Linear(size * stacked, inner, bias=False)
        self.linear_2 = nn.Linear(inner // 2, out, bias=False)
        if norm_between:
            self.ln_mid = _Norm(inner // 2)
        else:
            self.ln_post = _Norm(out)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.pad(x, (0, 0, 0, -len(x) % self.stacked)).reshape(-1, self.stacked * x.shape[1])
        value, gate = self.linear_1(self.ln_pre(x)).chunk(2, dim=-1)
        x = nn.functional.silu(gate) * value
        x = self.linear_2(self.ln_mid(x) if hasattr(self, "ln_mid") else x)
        return self.ln_post(x) if hasattr(self, "ln_post") else x


class TinyUltravox(nn.Module):
    """Whisper's encoder, the projector, Llama."""

    def __init__(self, text: Any, tower: Any, *, norm_between: bool) -> None:
        super().__init__()
        self.language_model = transformers.LlamaForCausalLM(text)
        self.audio_tower = transformers.WhisperModel(tower).encoder
        self.multi_modal_projector = _Projector(tower.d_model, 4, 40, text.hidden_size, norm_between=norm_between)

    def get_input_embeddings(self) -> nn.Module:
        found: nn.Module = self.language_model.get_input_embeddings()
        return found

    def embeddings(self, features: Any, sound: np.ndarray) -> Tensor:
        filled = np.pad(sound, (0, -len(sound) % 160))
        values = features(filled, sampling_rate=RATE, padding="longest", truncation=False, return_tensors="pt")
        most = 2 * self.audio_tower.config.max_source_positions
        windows = values["input_features"].split(most, dim=-1)
        return torch.cat([self.multi_modal_projector(self._encoded(window)) for window in windows])

    def _encoded(self, window: Tensor) -> Tensor:
        """The encoder on as many frames as there are: transformers' own insists on thirty seconds."""
        tower = self.audio_tower
        x = nn.functional.gelu(tower.conv2(nn.functional.gelu(tower.conv1(window)))).permute(0, 2, 1)
        x = x + tower.embed_positions.weight[: x.shape[1]]
        for layer in tower.layers:
            x = layer(x, None)
            x = x[0] if isinstance(x, tuple) else x
        found: Tensor = tower.layer_norm(x)[0]
        return found


def make_sound(name: str, folder: Path, *, norm_between: bool = True) -> TinySound:
    torch.manual_seed(13)
    tokenizer = vocabularies.byte_level()
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=True) for mark in MARKS])
    ids = {mark: tokenizer.token_to_id(mark) for mark in MARKS}
    size = -(-tokenizer.get_vocab_size(with_added_tokens=True) // 8) * 8
    text = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"num_key_value_heads": 2, "vocab_size": size, "max_position_embeddings": 512, "bos_token_id": 0}
    text |= {"eos_token_id": 2, "tie_word_embeddings": False}  # type: ignore[dict-item]
    make = _qwen2_audio if name == "qwen2_audio" else _ultravox
    model, config, mark = make(ids, text, norm_between)
    model = model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    bins = config["audio_config"]["num_mel_bins"]
    if name == "qwen2_audio":
        model.save_pretrained(folder)
    else:
        folder.mkdir(exist_ok=True)
        save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
    template = TEMPLATE.replace("MARK", mark)
    vocabularies.write_folder(folder, tokenizer, eos_token="<|im_end|>", chat_template=template)
    features = transformers.WhisperFeatureExtractor(feature_size=bins)
    token = ids["<|AUDIO|>"] if name == "qwen2_audio" else ids["<|reserved_special_token_0|>"]
    return TinySound(name, folder, model, features, token, mark, tokenizer)


def _qwen2_audio(ids: dict[str, int], text: dict[str, Any], norm_between: bool) -> tuple[Any, dict[str, Any], str]:
    tower = {**_TOWER, "num_mel_bins": 16}
    config = transformers.Qwen2AudioConfig(
        audio_config=tower, text_config={**text, "model_type": "qwen2"}, audio_token_index=ids["<|AUDIO|>"]
    )
    mark = "<|audio_bos|><|AUDIO|><|audio_eos|>"
    return transformers.Qwen2AudioForConditionalGeneration(config), {"audio_config": tower}, mark


def _ultravox(ids: dict[str, int], text: dict[str, Any], norm_between: bool) -> tuple[Any, dict[str, Any], str]:
    """Windows of half a second, so that a short sound has several."""
    tower = {**_TOWER, "num_mel_bins": 16, "max_source_positions": 25}
    whisper = transformers.WhisperConfig(**tower, decoder_layers=1, decoder_attention_heads=2, vocab_size=8)
    whisper.pad_token_id = 0
    model = TinyUltravox(transformers.LlamaConfig(**text), whisper, norm_between=norm_between)
    config = {
        "model_type": "ultravox",
        "architectures": ["UltravoxModel"],
        "audio_config": {**tower, "model_type": "whisper"},
        "text_config": {**text, "model_type": "llama", "rms_norm_eps": 1e-6, "rope_theta": 10000.0},
        "stack_factor": 4,
        "hidden_size": 40,
        "projector_act": "swiglu",
        "projector_ln_mid": norm_between,
    }
    return model, config, "<|reserved_special_token_0|>"
