"""Qwen3-VL: a tower whose middle layers are read too and added to the first layers of the language model (DeepStack),
learned positions beside rotary ones, and positions of three axes that take turns in a head."""

from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.models.families.qwen_vl import MOVED, given_fields, qwen_tower, tower_attention
from quire.models.families.vision_blocks import VisionFamily, activation, matrix, plain_mlp, table, vision_norm
from quire.models.loading.hf_fields import HFFields
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec
from quire.spec.vision import DeepSpec, ProjectorSpec

_EPS = 1e-6
_USUAL = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "patch_size": 16,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [8, 16, 24],
}


def attach(text: ModelSpec, config: HFFields) -> ModelSpec:
    fields = HFFields({**_USUAL, **given_fields(config)}, config.source)
    size, inner = fields.size("hidden_size"), fields.size("intermediate_size")
    kind = activation(fields, "hidden_act", "gelu_pytorch_tanh")
    merge = fields.size_or_none("spatial_merge_size") or 2

    def layer(index: int) -> LayerSpec:
        start = f"visual.blocks.{index}."
        return LayerSpec(
            tower_attention(fields, start, size),
            plain_mlp((f"{start}mlp.linear_fc1", f"{start}mlp.linear_fc2"), size, inner, kind),
            vision_norm(f"{start}norm1", size, _EPS),
            vision_norm(f"{start}norm2", size, _EPS),
        )

    def merger(start: str) -> ProjectorSpec:
        joined = size * merge**2
        up, down = matrix(f"{start}linear_fc1", joined, joined), matrix(f"{start}linear_fc2", text.hidden_size, joined)
        return ProjectorSpec(up, down, "gelu", merge)

    last = replace(merger("visual.merger."), patch_norm=vision_norm("visual.merger.norm", size, _EPS))
    deep: list[DeepSpec] = []
    for number, index in enumerate(_deep_layers(fields, text.num_layers)):
        start = f"visual.deepstack_merger_list.{number}."
        deep.append(DeepSpec(index, replace(merger(start), norm=vision_norm(f"{start}norm", size * merge**2, _EPS))))
    tower = replace(
        qwen_tower(fields, size, layer, last, bias=True),
        positions=table("visual.pos_embed", fields.size("num_position_embeddings"), size),
        spread="blended",
        deep=tuple(deep),
    )
    if text.position_axes != 3:
        raise CheckpointError(f"{text.architecture} needs mrope_section, three numbers of pairs of a head.")
    ropes = tuple(replace(rope, interleaved=True) for rope in text.ropes)
    return replace(text, vision=tower, moved=MOVED, ropes=ropes)


def _deep_layers(fields: HFFields, num_layers: int) -> list[int]:
    given, depth = fields.values["deepstack_visual_indexes"], fields.size("depth")
    if not isinstance(given, list) or not all(isinstance(layer, int) and 0 <= layer < depth for layer in given):
        raise CheckpointError(f"{fields.source} must give deepstack_visual_indexes as a list of the tower's layers.")
    if len(given) >= num_layers:
        raise CheckpointError(
            f"{fields.source} reads {len(given)} layers of the tower (deepstack_visual_indexes); its decoder has "
            f"{num_layers} and needs one more at least."
        )
    return given


FAMILY = VisionFamily(attach, "qwen3")
WITH_EXPERTS = VisionFamily(attach, "qwen3_vl_moe_text")
