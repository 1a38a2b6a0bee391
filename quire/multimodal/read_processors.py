"""The processors of a model, by the files of its folder or by what its GGUF files say. One row a family."""

from collections.abc import Callable
from pathlib import Path

from quire.config.facts import MediaFacts
from quire.multimodal.families.clip import clip
from quire.multimodal.families.gemma3 import gemma3
from quire.multimodal.families.idefics3 import idefics3
from quire.multimodal.families.internvl import internvl
from quire.multimodal.families.llama4 import llama4
from quire.multimodal.families.llava import llava
from quire.multimodal.families.llava_next import llava_next, llava_onevision
from quire.multimodal.families.phi3_vision import phi3_vision
from quire.multimodal.families.qwen_vl import qwen2_vl, qwen3_vl
from quire.multimodal.processor import ProcessorFiles, Processors
from quire.multimodal.settings import read_json

_FAMILIES: dict[str, Callable[[ProcessorFiles], Processors]] = {
    "clip": clip,
    "siglip": clip,
    "llava": llava,
    "llava_next": llava_next,
    "llava_onevision": llava_onevision,
    "gemma3": gemma3,
    "llama4": llama4,
    "internvl": internvl,
    "idefics3": idefics3,
    "smolvlm": idefics3,
    "phi3_v": phi3_vision,
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
}
_PARTS = ("vision_config", "img_processor")
"""Under which a config describes its tower."""


def read_processors(path: Path, told: MediaFacts | None = None) -> Processors:
    """Empty where the model reads texts alone, or quire does not know how it reads media; `told` is what GGUF files say
    of it."""
    config = told.config if told is not None else read_json(path / "config.json") if path.is_dir() else {}
    make = _FAMILIES.get(str(config.get("model_type", "")))
    if make is None or not any(isinstance(config.get(part), dict) for part in _PARTS):
        return {}
    return make(ProcessorFiles(config, path, told))
