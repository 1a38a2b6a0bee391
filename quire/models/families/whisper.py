"""Whisper: an encoder of spectrograms, and a decoder that looks at what it made and writes what was said."""

import math
from dataclasses import replace
from typing import Any

from quire.models.families.blocks import decoder, layer_norm, plain_mlp, projection, self_attention, table
from quire.models.families.dimensions import Dimensions, without_shared_heads
from quire.models.families.family import Family
from quire.spec.audio_encoder import AudioEncoderSpec, ConvolutionSpec
from quire.spec.layer import AttentionSpec, CrossAttentionSpec, LayerSpec
from quire.spec.layout import Reshaped
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import EmbeddingSpec, ModelSpec

_ENCODER, _DECODER = "model.encoder", "model.decoder"
_WIDTH = 3
"""Frames that an output of a convolution sees."""
_STRIDES = (1, 2)


def describe(dims: Dimensions) -> ModelSpec:
    positions = table(f"{_DECODER}.embed_positions", "positions", dims.max_position, dims.hidden_size)
    words = table(f"{_DECODER}.embed_tokens", "words", dims.vocab_size, dims.hidden_size)
    return decoder(
        dims,
        lambda layer: _decoder_layer(dims, layer),
        embedding=EmbeddingSpec(words, positions),
        norm=layer_norm(dims, f"{_DECODER}.layer_norm", "output_norm"),
        head_name="proj_out",
        ropes=(),
        encoder=_encoder(dims),
    )


def _encoder(dims: Dimensions) -> AudioEncoderSpec:
    fields, hidden = dims.fields, dims.hidden_size
    bins, length = fields.size("num_mel_bins"), fields.size("max_source_positions")
    sizes = zip((bins, hidden), _STRIDES, strict=True)
    convolutions = [
        ConvolutionSpec(_convolution(number, channels, hidden), _WIDTH, stride)
        for number, (channels, stride) in enumerate(sizes, start=1)
    ]
    return AudioEncoderSpec(
        num_mel_bins=bins,
        num_positions=length,
        convolutions=tuple(convolutions),
        positions=table(f"{_ENCODER}.embed_positions", "encoder_positions", length, hidden),
        layers=tuple(_encoder_layer(dims, layer) for layer in range(fields.size("encoder_layers"))),
        norm=layer_norm(dims, f"{_ENCODER}.layer_norm", "encoder_norm"),
    )


def _convolution(number: int, channels: int, rows: int) -> MatrixSpec:
    part = Part(f"{_ENCODER}.conv{number}", f"conv{number}", rows, Reshaped((rows, channels, _WIDTH), rows))
    return MatrixSpec((part,), channels * _WIDTH, "none", bias=True)


def _encoder_layer(dims: Dimensions, layer: int) -> LayerSpec:
    """Heads of the encoder may be others than those of the decoder."""
    heads = dims.fields.size("encoder_attention_heads")
    own = replace(dims, num_heads=heads, num_kv_heads=heads, head_dim=dims.hidden_size // heads)
    prefix = f"{_ENCODER}.layers.{layer}"
    return LayerSpec(
        replace(_attention(own, layer, f"{prefix}.self_attn"), causal=False),
        plain_mlp(own, layer, (f"{prefix}.fc1", f"{prefix}.fc2"), dims.fields.size("encoder_ffn_dim")),
        layer_norm(own, f"{prefix}.self_attn_layer_norm", "attention_norm", layer),
        layer_norm(own, f"{prefix}.final_layer_norm", "mlp_norm", layer),
    )


def _decoder_layer(dims: Dimensions, layer: int) -> LayerSpec:
    prefix = f"{_DECODER}.layers.{layer}"
    return LayerSpec(
        _attention(dims, layer, f"{prefix}.self_attn"),
        plain_mlp(dims, layer, (f"{prefix}.fc1", f"{prefix}.fc2"), dims.fields.size("decoder_ffn_dim")),
        layer_norm(dims, f"{prefix}.self_attn_layer_norm", "attention_norm", layer),
        layer_norm(dims, f"{prefix}.final_layer_norm", "mlp_norm", layer),
        wiring="cross",
        cross=_cross(dims, layer, f"{prefix}.encoder_attn"),
    )


def _attention(dims: Dimensions, layer: int, prefix: str) -> AttentionSpec:
    """Keys have no bias: scores would only all move by the same."""
    rows = dims.num_heads * dims.head_dim
    parts = [Part(f"{prefix}.{role}_proj", role, rows, has_bias=role != "k") for role in ("q", "k", "v")]
    qkv = MatrixSpec(tuple(parts), dims.hidden_size, "rows", bias=True, layer=layer)
    return self_attention(dims, layer, qkv, f"{prefix}.out_proj", bias=True, rope=None)


def _cross(dims: Dimensions, layer: int, prefix: str) -> CrossAttentionSpec:
    rows, hidden = dims.num_heads * dims.head_dim, dims.hidden_size
    keys, values = (Part(f"{prefix}.{role}_proj", f"cross_{role}", rows, has_bias=role != "k") for role in ("k", "v"))
    norm = layer_norm(dims, f"{prefix}_layer_norm", "cross_norm", layer)
    return CrossAttentionSpec(
        query=MatrixSpec((Part(f"{prefix}.q_proj", "cross_q", rows),), hidden, "rows", bias=True, layer=layer),
        keys_values=MatrixSpec((keys, values), hidden, "rows", bias=True, layer=layer),
        out=projection(dims, layer, f"{prefix}.out_proj", "cross_out", rows, bias=True),
        norm=norm,
        num_heads=dims.num_heads,
        head_dim=dims.head_dim,
        scale=1 / math.sqrt(dims.head_dim),
        num_positions=dims.fields.size("max_source_positions"),
    )


def _adapt(values: dict[str, Any]) -> dict[str, Any]:
    """The decoder's shape is the model's: it is what generates."""
    names = {
        "decoder_layers": "num_hidden_layers",
        "decoder_attention_heads": "num_attention_heads",
        "max_target_positions": "max_position_embeddings",
    }
    found = {ours: values[theirs] for theirs, ours in names.items() if theirs in values}
    return {**without_shared_heads(values), **found}


_DEFAULTS: dict[str, Any] = {
    "activation_function": "gelu",
    "layer_norm_eps": 1e-5,
    "num_mel_bins": 80,
    "max_source_positions": 1500,
    "max_position_embeddings": 448,
    "tie_word_embeddings": True,
}
FAMILY = Family(describe, _DEFAULTS, _adapt)
