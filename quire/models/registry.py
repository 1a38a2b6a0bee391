"""Model families by the `model_type` of a checkpoint's config, or by the architecture of a GGUF file. Torch-free.

A plugin adds a family by an entry point of `quire.models`, called as its `model_type`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.config.model import ModelImpl
from quire.core.errors import CheckpointError, PluginError
from quire.core.nearest import did_you_mean
from quire.core.plugins import NAMED, find_plugin, not_permitted, permission
from quire.core.registry import Registry
from quire.models.families.dimensions import read_dimensions, text_values
from quire.models.families.family import Family
from quire.models.families.outline import OUTLINE
from quire.models.families.vision_blocks import VisionFamily
from quire.models.loading.hf_fields import HFFields
from quire.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class Row:
    """One family: where it is, and the names that lead there."""

    place: str
    """File and name in `quire.models.families`."""
    model_types: tuple[str, ...]
    gguf: tuple[str, ...] = ()


ROWS = (
    Row("llama:FAMILY", ("llama", "smollm2"), ("llama",)),
    Row("llama:MISTRAL", ("mistral",)),
    Row("qwen2:FAMILY", ("qwen2",), ("qwen2", "qwen2vl")),
    Row("qwen3:FAMILY", ("qwen3",), ("qwen3", "qwen3vl")),
    Row("gemma:GEMMA2", ("gemma2",), ("gemma2",)),
    Row("gemma:GEMMA3", ("gemma3_text", "gemma3"), ("gemma3",)),
    Row("phi3:FAMILY", ("phi3",), ("phi3",)),
    Row("gpt2:FAMILY", ("gpt2",), ("gpt2",)),
    Row("olmo2:FAMILY", ("olmo2",), ("olmo2",)),
    Row("granite:FAMILY", ("granite",), ("granite",)),
    Row("smollm3:FAMILY", ("smollm3",), ("smollm3",)),
    Row("stablelm:FAMILY", ("stablelm",), ("stablelm",)),
    Row("gpt_neox:FAMILY", ("gpt_neox",), ("gptneox",)),
    Row("opt:FAMILY", ("opt",)),
    Row("falcon:FAMILY", ("falcon",), ("falcon",)),
    Row("cohere:COHERE", ("cohere",), ("command-r",)),
    Row("cohere:COHERE2", ("cohere2",), ("cohere2",)),
    Row("mixtral:FAMILY", ("mixtral",)),
    Row("qwen_moe:QWEN2", ("qwen2_moe",)),
    Row("qwen_moe:QWEN3", ("qwen3_moe",), ("qwen3moe",)),
    Row("qwen_moe:QWEN3_VL", ("qwen3_vl_moe_text",)),
    Row("olmoe:FAMILY", ("olmoe",), ("olmoe",)),
    Row("granite_moe:FAMILY", ("granitemoe",)),
    Row("glm4_moe:FAMILY", ("glm4_moe",)),
    Row("phimoe:FAMILY", ("phimoe",), ("phimoe",)),
    Row("deepseek:V2", ("deepseek_v2",), ("deepseek2",)),
    Row("deepseek:V3", ("deepseek_v3",)),
    Row("gpt_oss:FAMILY", ("gpt_oss",), ("gpt-oss",)),
    Row("llama4:FAMILY", ("llama4_text", "llama4"), ("llama4",)),
    Row("bert:BERT", ("bert",), ("bert",)),
    Row("bert:ROBERTA", ("roberta", "xlm-roberta", "camembert")),
    Row("mpnet:FAMILY", ("mpnet",)),
    Row("modernbert:FAMILY", ("modernbert",)),
    Row("whisper:FAMILY", ("whisper",)),
    Row("clip:CLIP_TEXT", ("clip_text_model",)),
    Row("clip:SIGLIP_TEXT", ("siglip_text_model",)),
    Row("nomic_bert:FAMILY", ("nomic_bert",), ("nomic-bert",)),
)

VISION_ROWS = {
    "llava": "llava:FAMILY",
    "llava_next": "llava_next:NEXT",
    "llava_onevision": "llava_next:ONEVISION",
    "gemma3": "gemma3_vision:FAMILY",
    "llama4": "llama4_vision:FAMILY",
    "internvl": "internvl:FAMILY",
    "idefics3": "idefics3:FAMILY",
    "smolvlm": "idefics3:FAMILY",
    "qwen2_vl": "qwen_vl:QWEN2",
    "qwen2_5_vl": "qwen_vl:QWEN2_5",
    "qwen3_vl": "qwen3_vl:FAMILY",
    "qwen3_vl_moe": "qwen3_vl:WITH_EXPERTS",
    "clip": "clip:CLIP",
    "siglip": "clip:SIGLIP",
    "phi3_v": "phi3_vision:FAMILY",
    "qwen2_audio": "audio_towers:QWEN2_AUDIO",
    "ultravox": "audio_towers:ULTRAVOX",
}
"""By `model_type` of the whole: where it is said how media join the language model, whose own type says the rest."""
_PARTS = ("vision_config", "audio_config", "img_processor")
"""Under which a config describes its tower."""

FAMILIES: Registry[ModelSpec] = Registry(
    "model family",
    {name: f"quire.models.families.{row.place}" for row in ROWS for name in row.model_types},
    group="quire.models",
)
VISION_FAMILIES: Registry[VisionFamily] = Registry(
    "vision family", {name: f"quire.models.families.{place}" for name, place in VISION_ROWS.items()}
)
GGUF_ARCHITECTURES: dict[str, str] = {name: row.model_types[0] for row in ROWS for name in row.gguf}
"""The `model_type` that each architecture of GGUF stands for."""
TOLD_APART = ("mixtral", "deepseek_v3")
"""Types that GGUF files call by the name of another, `llama` and `deepseek2`; that one's family tells them apart."""


def _known_types() -> list[str]:
    """Each once; of a model with eyes or ears its own, not that of its language part."""
    parts = {f"{name}{part}" for name in VISION_FAMILIES for part in ("_text", "_text_model")}
    return [name for name in dict.fromkeys((*FAMILIES, *VISION_FAMILIES)) if name not in parts]


def describe(config: Mapping[str, Any], source: str, impl: ModelImpl = "quire") -> ModelSpec:
    """The model of a parsed config.json; `source` names it in errors.

    `impl` says whose code it is to run: where that is not quire's own, the spec is an outline.
    """
    if isinstance(config.get("text_model_id"), str) and not config.get("text_config"):
        raise CheckpointError(
            f"{source} has its language model in another checkpoint, {config['text_model_id']!r}; put both into one "
            "folder, with text_config in its config.json and the weights under language_model."
        )
    values = text_values(config)
    vision = _vision_family(config) if impl != "transformers" else None
    model_type = (vision.text_type if vision is not None else "") or str(values.get("model_type", ""))
    is_known = model_type in FAMILIES
    if not is_known and impl != "transformers":
        _refuse_what_is_kept_out(model_type, source)
    if not is_known and impl == "quire":
        known = _known_types()
        raise CheckpointError(
            f"{source} is of type {model_type!r}; quire runs {', '.join(known)}.{did_you_mean(model_type, known)}"
        )
    # what a config leaves to its class, or says in words of its own, is the same whoever runs it
    family = family_of(model_type) if is_known else OUTLINE
    usual = {} if vision is None else vision.text_defaults.get(model_type, {})
    given = {**family.defaults, **usual, **family.adapt(values)}
    spec = (OUTLINE if impl == "transformers" else family).describe(
        read_dimensions(
            HFFields(given, source),
            (vision.architecture if vision is not None else "") or _architecture(config, model_type),
        )
    )
    return spec if vision is None or not spec.is_described else vision.attach(spec, HFFields(config, source))


def describe_gguf(config: Mapping[str, Any], source: str) -> ModelSpec:
    """The model of a GGUF file, by the config.json that it stands for."""
    model_type = str(config.get("model_type", ""))
    if model_type not in {*GGUF_ARCHITECTURES.values(), *TOLD_APART}:
        raise CheckpointError(
            f"{source} holds a model of architecture {model_type!r}; of GGUF quire runs "
            f"{', '.join(GGUF_ARCHITECTURES)}."
        )
    return describe(config, source)


def family_of(model_type: str) -> Family:
    """The registered family of a type that is known."""
    family: Any = FAMILIES.get(model_type)
    if not isinstance(family, Family):
        raise PluginError(f"the model family {model_type!r} is {family!r}, and must be a Family.")
    return family


def _refuse_what_is_kept_out(model_type: str, source: str) -> None:
    """Say of a plugin that would describe the model that it only needs the operator's word."""
    plugin = find_plugin("quire.models", model_type) if permission() == NAMED else None
    if plugin is not None:
        raise PluginError(f"{source} is of type {model_type!r}, which {not_permitted(plugin)}")


def _vision_family(config: Mapping[str, Any]) -> VisionFamily | None:
    """How the model reads media; None where it reads texts alone."""
    model_type = str(config.get("model_type", ""))
    if model_type not in VISION_FAMILIES or not any(isinstance(config.get(part), dict) for part in _PARTS):
        return None
    family: Any = VISION_FAMILIES.get(model_type)
    assert isinstance(family, VisionFamily), f"{model_type} is registered as something else"
    return family


def _architecture(config: Mapping[str, Any], model_type: str) -> str:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else model_type
