"""Qwen2-Audio and Ultravox: Whisper's encoder beside a language model, whose prompts have embeddings of sound."""

from dataclasses import replace
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.vision_blocks import VisionFamily, activation, attention, matrix, plain_mlp, vision_norm
from quire.models.loading.hf_fields import HFFields
from quire.spec.audio_encoder import AudioEncoderSpec, ConvolutionSpec
from quire.spec.audio_tower import AudioTowerSpec, SoundProjectorSpec
from quire.spec.layer import LayerSpec
from quire.spec.layout import Reshaped
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ModelSpec

_TOWER, _JOINT = "audio_tower.", "multi_modal_projector."
_MOVED = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
    (f"model.{_TOWER}", _TOWER),
    (f"model.{_JOINT}", _JOINT),
)
_EPS = 1e-5
_PROJECTOR_EPS = 1e-6
_WIDTH, _STRIDES = 3, (1, 2)
_DEFAULTS: dict[str, Any] = {
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "num_mel_bins": 128,
    "max_source_positions": 1500,
}


def _attach_qwen2_audio(text: ModelSpec, config: HFFields) -> ModelSpec:
    """Pairs of positions averaged, then one matrix."""
    encoder = _encoder(config)
    size = encoder.norm.shape[0]
    projector = SoundProjectorSpec(matrix(f"{_JOINT}linear", text.hidden_size, size))
    return replace(text, audio=AudioTowerSpec(encoder, projector, pooled=2), moved=_MOVED)


def _attach_ultravox(text: ModelSpec, config: HFFields) -> ModelSpec:
    """Eight positions stacked, normed, and two matrices around a gate."""
    if config.text("projector_act", "swiglu") != "swiglu":
        raise CheckpointError(
            f"{config.source} gives projector_act {config.values['projector_act']!r}; of Ultravox quire has swiglu."
        )
    encoder = _encoder(config)
    stacked = config.size_or_none("stack_factor") or 8
    joined, inner = encoder.norm.shape[0] * stacked, config.size_or_none("hidden_size") or 4096
    between = config.flag("projector_ln_mid", False)
    name, width = ("ln_mid", inner // 2) if between else ("ln_post", text.hidden_size)
    norm = vision_norm(f"{_JOINT}{name}", width, _PROJECTOR_EPS, "rms")
    projector = SoundProjectorSpec(
        up=matrix(f"{_JOINT}linear_1", inner, joined, bias=False),
        down=matrix(f"{_JOINT}linear_2", text.hidden_size, inner // 2, bias=False),
        stacked=stacked,
        norm_before=vision_norm(f"{_JOINT}ln_pre", joined, _PROJECTOR_EPS, "rms"),
        norm_between=norm if between else None,
        norm_after=None if between else norm,
    )
    return replace(text, audio=AudioTowerSpec(encoder, projector), moved=_MOVED)


def _encoder(config: HFFields) -> AudioEncoderSpec:
    given = config.nested("audio_config")
    fields = HFFields({**_DEFAULTS, **{k: v for k, v in given.values.items() if v is not None}}, given.source)
    size, bins, length = fields.size("d_model"), fields.size("num_mel_bins"), fields.size("max_source_positions")
    convolutions = [
        ConvolutionSpec(_convolution(number, channels, size), _WIDTH, stride)
        for number, (channels, stride) in enumerate(zip((bins, size), _STRIDES, strict=True), start=1)
    ]
    return AudioEncoderSpec(
        num_mel_bins=bins,
        num_positions=length,
        convolutions=tuple(convolutions),
        positions=matrix(f"{_TOWER}embed_positions", length, size, bias=False),
        layers=tuple(_layer(fields, layer, size) for layer in range(fields.size("encoder_layers"))),
        norm=vision_norm(f"{_TOWER}layer_norm", size, _EPS),
    )


def _convolution(number: int, channels: int, rows: int) -> MatrixSpec:
    part = Part(f"{_TOWER}conv{number}", "vision", rows, Reshaped((rows, channels, _WIDTH), rows))
    return MatrixSpec((part,), channels * _WIDTH, "none", bias=True)


def _layer(fields: HFFields, layer: int, size: int) -> LayerSpec:
    """Keys have no bias, as in Whisper."""
    start = f"{_TOWER}layers.{layer}."
    parts = tuple(Part(f"{start}self_attn.{name}_proj", "vision", size, has_bias=name != "k") for name in "qkv")
    kind, inner = activation(fields, "activation_function", "gelu"), fields.size("encoder_ffn_dim")
    heads = fields.size("encoder_attention_heads")
    return LayerSpec(
        attention(MatrixSpec(parts, size, "none", True), f"{start}self_attn.out_proj", size, heads),
        plain_mlp((f"{start}fc1", f"{start}fc2"), size, inner, kind),
        vision_norm(f"{start}self_attn_layer_norm", size, _EPS),
        vision_norm(f"{start}final_layer_norm", size, _EPS),
    )


QWEN2_AUDIO = VisionFamily(_attach_qwen2_audio)
ULTRAVOX = VisionFamily(_attach_ultravox, architecture="UltravoxForConditionalGeneration")
