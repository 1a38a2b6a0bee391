"""What the tensors of vision towers are called in mmproj files, and which are in several pieces there. Torch-free."""

import re
from collections.abc import Mapping
from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.models.loading.match import Found
from quire.models.loading.mmproj.tower import MmprojTower
from quire.models.loading.spans import TensorSpan
from quire.models.loading.tensor_names import FileNames
from quire.spec.layout import FramesApart
from quire.spec.tensor import TensorSpec
from quire.spec.vision import VisionSpec

_IN_LAYER = re.compile(r".*\.(?:layers?|blocks)\.(?P<layer>\d+)\.(?P<stem>.+)\.(?P<ending>weight|bias)")
_OF_LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "attention.q_proj": "attn_q",
    "attention.k_proj": "attn_k",
    "attention.v_proj": "attn_v",
    "attention.o_proj": "attn_out",
    "attention.projection_layer": "attn_out",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.qkv": "attn_qkv",
    "attn.proj": "attn_out",
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "norm1": "ln1",
    "norm2": "ln2",
    "attention_norm": "ln1",
    "ffn_norm": "ln2",
    "layernorm_before": "ln1",
    "layernorm_after": "ln2",
    "lambda_1": "ls1",
    "lambda_2": "ls2",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
}
_OUTSIDE = {
    "embeddings.patch_embedding": "v.patch_embd",
    "embeddings.patch_embeddings.projection": "v.patch_embd",
    "patch_embed.proj": "v.patch_embd",
    "patch_conv": "v.patch_embd",
    "embeddings.class_embedding": "v.class_embd",
    "embeddings.cls_token": "v.class_embd",
    "embeddings.position_embedding": "v.position_embd",
    "embeddings.position_embeddings": "v.position_embd",
    "pos_embed": "v.position_embd",
    "pre_layrnorm": "v.pre_ln",
    "ln_pre": "v.pre_ln",
    "post_layernorm": "v.post_ln",
    "layernorm": "v.post_ln",
    "merger.ln_q": "v.post_ln",
    "merger.norm": "v.post_ln",
}
"""By how names end behind the tower's own; what a projector type calls otherwise is its own to say."""
_TOWERS = ("vision_tower.", "model.vision_model.", "visual.")
_ALSO = {
    "v.class_embd.weight": ("v.class_embd",),
    "v.image_newline.weight": ("v.image_newline", "model.image_newline"),
    "mm.0.weight": ("mm.1.weight",),
    "mm.0.bias": ("mm.1.bias",),
}
"""Other names of tensors: by what they are alone, and of a projector's first matrix counted from 1."""
_SWAPPED = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}


def mmproj_names(vision: VisionSpec, tower: MmprojTower, projector: Mapping[str, str], unused: str) -> FileNames:
    """Of all tensors of a tower; `projector` has the stems of the projector's, `unused` is a pattern of names that the
    model does not need; layers behind the one whose features are read are none either.
    """
    spelled: dict[str, TensorSpec] = {}
    for tensor in vision.tensors():
        name = _name(tensor, projector, swaps_mlp=tower.swaps_mlp)
        for spelling in (name, *_ALSO.get(name, ())):
            spelled[spelling] = tensor
    behind = "|".join(map(str, range(len(vision.layers), tower.num_layers)))
    patterns = [pattern for pattern in (unused, rf"v\.blk\.({behind})\..*" if behind else "") if pattern]
    return FileNames(
        spelled,
        tuple(vision.tensors()),
        lambda tensor: tensor.gguf_layout,
        re.compile("|".join(patterns) or r"(?!)"),
    )


def _name(tensor: TensorSpec, projector: Mapping[str, str], *, swaps_mlp: bool) -> str:
    found = _IN_LAYER.fullmatch(tensor.name)
    if found is not None:
        stem = _OF_LAYERS[found["stem"]]
        stem = _SWAPPED.get(stem, stem) if swaps_mlp else stem
        return f"v.blk.{found['layer']}.{stem}.{found['ending']}"
    stem, _, ending = tensor.name.rpartition(".")
    if stem in projector:
        return f"{projector[stem]}.{ending}"
    tower = next(start for start in _TOWERS if stem.startswith(start))
    return f"{_OUTSIDE[stem.removeprefix(tower)]}.{ending}"


def whole_spans(tower: MmprojTower) -> list[TensorSpan]:
    """What there is to match, in the order of the file: of tensors in pieces the first, and none with axes of one place
    before all others, which some converters leave.
    """
    spans = sorted(tower.header.tensors, key=lambda span: span.start)
    return [replace(span, shape=_plain_shape(span.shape)) for span in spans if not _PIECE.fullmatch(span.name)]


def with_pieces(found: Found, tower: MmprojTower) -> Found:
    """A tensor with what the file has of it besides."""
    if not isinstance(found.layout, FramesApart):
        return found
    others = tuple(tower.tensor(f"{found.span.name}.{frame}") for frame in range(1, found.layout.frames))
    for span in others:
        if (span.dtype, span.shape) != (found.span.dtype, found.span.shape):
            raise CheckpointError(
                f"{tower.source}: tensor {span.name!r} is {span.dtype} of shape {list(span.shape)}, and "
                f"{found.span.name!r}, the first of its frames, is {found.span.dtype} of {list(found.span.shape)}."
            )
    return replace(found, others=others)


_PIECE = re.compile(r"v\.patch_embd\.weight\.\d+")


def _plain_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape
