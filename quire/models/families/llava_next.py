"""LLaVA-NeXT and LLaVA-OneVision: LLaVA with images in tiles, and a learned vector behind each row of them."""

from dataclasses import replace

from quire.models.families.llava import TEXT_DEFAULTS
from quire.models.families.llava import attach as attach_llava
from quire.models.families.vision_blocks import VisionFamily, table
from quire.models.loading.hf_fields import HFFields
from quire.spec.model import ModelSpec
from quire.spec.vision import TilingSpec

_NEWLINE = "image_newline"
_ONEVISION_USUAL = {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"}


def _attach_next(text: ModelSpec, config: HFFields) -> ModelSpec:
    return _tiled(attach_llava(text, config), None)


def _attach_onevision(text: ModelSpec, config: HFFields) -> ModelSpec:
    given = HFFields({**_ONEVISION_USUAL, **config.values}, config.source)
    most = given.text("vision_aspect_ratio", "anyres_max_9").removeprefix("anyres_max_")
    return _tiled(attach_llava(text, given), int(most))


def _tiled(model: ModelSpec, most_tiles: int | None) -> ModelSpec:
    assert model.vision is not None, "a tower was attached"
    tiling = TilingSpec(table(_NEWLINE, 1, model.hidden_size), most_tiles)
    renamed = (*model.renamed, (_NEWLINE, f"{_NEWLINE}.weight"))
    return replace(model, vision=replace(model.vision, tiling=tiling), renamed=renamed)


NEXT = VisionFamily(_attach_next, text_defaults=TEXT_DEFAULTS)
ONEVISION = VisionFamily(_attach_onevision)
