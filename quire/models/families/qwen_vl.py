"""Qwen2-VL and Qwen2.5-VL: towers that take pictures of any size, squares of four patches to an embedding, and
positions of three axes."""

from collections.abc import Callable
from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.models.families.vision_blocks import (
    VisionFamily,
    activation,
    attention,
    matrix,
    patch_matrix,
    plain_mlp,
    vision_norm,
)
from quire.models.loading.hf_fields import HFFields
from quire.spec.layer import AttentionSpec, LayerSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.mlp import MlpSpec
from quire.spec.model import ModelSpec
from quire.spec.vision import AxialRopeSpec, ProjectorSpec, VisionSpec, WindowsSpec

_EPS = 1e-6
_THETA = 10_000.0
QKV_APART = "qkv_apart"
"""Whether queries, keys and values are tensors of their own, as in mmproj files of GGUF; no config.json says so."""
MOVED = (("model.language_model.", "model."), ("model.visual.", "visual."))


def _attach_2(text: ModelSpec, config: HFFields) -> ModelSpec:
    fields = HFFields(
        {"embed_dim": 1280, "depth": 32, "num_heads": 16, "mlp_ratio": 4, **given_fields(config)}, config.source
    )
    size = fields.size("embed_dim")
    inner = int(size * fields.number("mlp_ratio", 4))
    kind = activation(fields, "hidden_act", "quick_gelu")

    def layer(index: int) -> LayerSpec:
        start = f"visual.blocks.{index}."
        return LayerSpec(
            tower_attention(fields, start, size),
            plain_mlp((f"{start}mlp.fc1", f"{start}mlp.fc2"), size, inner, kind),
            vision_norm(f"{start}norm1", size, _EPS),
            vision_norm(f"{start}norm2", size, _EPS),
        )

    norm = vision_norm("visual.merger.ln_q", size, _EPS)
    projector = replace(_merger(fields, size, text.hidden_size), patch_norm=norm)
    return _attached(text, qwen_tower(fields, size, layer, projector))


def _attach_2_5(text: ModelSpec, config: HFFields) -> ModelSpec:
    usual = {"hidden_size": 3584, "intermediate_size": 3420, "depth": 32, "num_heads": 16, "window_size": 112}
    fields = HFFields({**usual, "fullatt_block_indexes": [7, 15, 23, 31], **given_fields(config)}, config.source)
    size, inner = fields.size("hidden_size"), fields.size("intermediate_size")
    kind = activation(fields, "hidden_act", "silu")

    def layer(index: int) -> LayerSpec:
        start = f"visual.blocks.{index}."
        parts = tuple(Part(f"{start}mlp.{name}_proj", "vision", inner) for name in ("gate", "up"))
        up, down = MatrixSpec(parts, size, "none", True), matrix(f"{start}mlp.down_proj", size, inner)
        return LayerSpec(
            tower_attention(fields, start, size),
            MlpSpec(up, down, kind, gated=True),
            vision_norm(f"{start}norm1", size, _EPS, "rms"),
            vision_norm(f"{start}norm2", size, _EPS, "rms"),
        )

    norm = vision_norm("visual.merger.ln_q", size, _EPS, "rms")
    projector = replace(_merger(fields, size, text.hidden_size), patch_norm=norm)
    tower = replace(
        qwen_tower(fields, size, layer, projector),
        windows=WindowsSpec(fields.size("window_size"), _whole_layers(fields)),
        positions_per_second=fields.number("tokens_per_second", 4.0),
    )
    return _attached(text, tower)


def given_fields(config: HFFields) -> dict[str, object]:
    given = config.nested("vision_config").values
    return {name: value for name, value in given.items() if value is not None}


def tower_attention(fields: HFFields, start: str, size: int) -> AttentionSpec:
    qkv = matrix(f"{start}attn.qkv", 3 * size, size)
    if fields.flag(QKV_APART, False):
        qkv = replace(qkv, parts=tuple(Part(f"{start}attn.{name}", "vision", size) for name in "qkv"))
    return attention(qkv, f"{start}attn.proj", size, fields.size("num_heads"), rope=0)


def _merger(fields: HFFields, size: int, hidden_size: int) -> ProjectorSpec:
    merge = fields.size_or_none("spatial_merge_size") or 2
    joined = size * merge**2
    up, down = matrix("visual.merger.mlp.0", joined, joined), matrix("visual.merger.mlp.2", hidden_size, joined)
    return ProjectorSpec(up, down, "gelu", merge)


def qwen_tower(
    fields: HFFields, size: int, layer: Callable[[int], LayerSpec], projector: ProjectorSpec, *, bias: bool = False
) -> VisionSpec:
    patch, frames = fields.size_or_none("patch_size") or 14, fields.size_or_none("temporal_patch_size") or 2
    return VisionSpec(
        patch_size=patch,
        frames=frames,
        patches=patch_matrix("visual.patch_embed.proj", size, patch, frames=frames, bias=bias),
        layers=tuple(map(layer, range(fields.size("depth")))),
        rope=AxialRopeSpec(size // fields.size("num_heads"), _THETA),
        projector=projector,
    )


def _whole_layers(fields: HFFields) -> frozenset[int]:
    given = fields.values["fullatt_block_indexes"]
    if not isinstance(given, list) or not all(isinstance(layer, int) for layer in given):
        raise CheckpointError(f"{fields.source} must give fullatt_block_indexes as a list of layers.")
    return frozenset(given)


def _attached(text: ModelSpec, vision: VisionSpec) -> ModelSpec:
    if text.position_axes != 3:
        raise CheckpointError(f"{text.architecture} needs mrope_section, three numbers of pairs of a head.")
    return replace(text, vision=vision, moved=MOVED)


QWEN2 = VisionFamily(_attach_2, "qwen2")
QWEN2_5 = VisionFamily(_attach_2_5, "qwen2")
