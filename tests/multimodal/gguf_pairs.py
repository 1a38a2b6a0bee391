"""Tiny vision models as llama.cpp has them: a GGUF file of the language model and an mmproj file.

Written from the rules of its converters and the `gguf` package's own name tables, not from quire's, so that the two
check each other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
from gguf import quants
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models.loading.converted import laid_out, rounded
from tests.models.loading.converted_metadata import write_metadata
from tests.multimodal.tiny_vision import MARKS, TinyVision
from tests.text import vocabularies

ARCHITECTURES = {
    "llava": "llama",
    "llava_next": "llama",
    "qwen2_vl": "qwen2vl",
    "qwen2_5_vl": "qwen2vl",
    "qwen3_vl": "qwen3vl",
    "gemma3": "gemma3",
    "idefics3": "llama",
    "internvl": "qwen2",
    "pixtral": "llama",
}
_LEGACY = ("llava", "llava_next")
"""Which only the old converter of image encoders converts."""
_TOWERS = (
    "vision_tower.",
    "multi_modal_projector.",
    "visual.",
    "model.visual.",
    "model.vision_model.",
    "model.connector.",
)
_LANGUAGE = ("language_model.model.", "model.language_model.", "model.text_model.")
_UNUSED_TYPE, _BLOCK = 5, 32
_MOST_MATRICES = 4
"""Of a projector, whose numbers the table counts like layers."""
_DEEP = "visual.deepstack_merger_list."
_INTERNVL = {
    "multi_modal_projector.layer_norm": "mlp1.0",
    "multi_modal_projector.linear_1": "mlp1.1",
    "multi_modal_projector.linear_2": "mlp1.3",
}


@dataclass(frozen=True)
class Pair:
    """The two files of one model."""

    model: Path
    mmproj: Path


@dataclass(frozen=True)
class Conversion:
    """What may differ between files of the same model."""

    kind: str = "F32"
    """Of the tower's matrices."""
    legacy: bool = True
    """Whether LLaVA's are named as by the old converter, with names of an MLP's matrices exchanged."""
    with_image_token: bool = True
    """Whether the vocabulary has the token of images."""
    sentencepiece: bool = False
    """Whether it is another one, as LLaVA 1.5's language model has it, which knows nothing of images."""
    template: str | None = None
    without: str = ""
    """A tensor that is left out."""
    metadata: tuple[tuple[str, Any], ...] = ()
    """What is said otherwise, or not at all."""


def write_pair(folder: Path, tiny: TinyVision, how: Conversion | None = None) -> Pair:
    """Both files of a tiny model, beside each other as a download has them."""
    how = how or Conversion()
    folder.mkdir(parents=True, exist_ok=True)
    return Pair(
        write_language(folder / "tiny-F32.gguf", tiny, how), write_mmproj(folder / "mmproj-tiny.gguf", tiny, how)
    )


# -- the language model ------------------------------------------------------------------------------------------------


def write_language(path: Path, tiny: TinyVision, how: Conversion) -> Path:
    architecture, config = ARCHITECTURES[tiny.name], tiny.model.config.text_config
    writer = gguf.GGUFWriter(path, architecture)
    write_metadata(writer, architecture, _without_ids(config))
    if "qwen" in tiny.name:
        writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])
    if architecture == "gemma3":
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    _write_vocabulary(writer, tiny, config.vocab_size, how)
    number = next(number for number, text in gguf.MODEL_ARCH_NAMES.items() if text == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    for name, values in load_file(tiny.folder / "model.safetensors").items():
        plain = _language_name(name)
        if plain is None:
            continue
        found = names.get_name(plain, try_suffixes=(".weight", ".bias"))
        assert found is not None, plain
        _add(writer, found, laid_out(architecture, plain, values, config), "F32")
    return _written(writer, path)


def _without_ids(config: Any) -> Any:
    """Special tokens are the vocabulary's to write."""
    plain = type(config)(**config.to_dict())
    plain.bos_token_id = plain.eos_token_id = plain.pad_token_id = None
    return plain


def _language_name(name: str) -> str | None:
    if name.startswith((*_TOWERS, "image_newline")):
        return None
    start = next((start for start in _LANGUAGE if name.startswith(start)), None)
    return f"model.{name.removeprefix(start)}" if start else name.removeprefix("language_model.")


def _write_vocabulary(writer: gguf.GGUFWriter, tiny: TinyVision, size: int, how: Conversion) -> None:
    """With rows of the embedding that have no token as unused ones, as the converter writes them."""
    if how.template is not None:
        writer.add_chat_template(how.template)
    if how.sentencepiece:
        _write_pieces(writer, size)
        return
    given = vocabularies.bpe_metadata(tiny.tokenizer, "gpt-2")
    tokens, types = given["tokenizer.ggml.tokens"], given["tokenizer.ggml.token_type"]
    types = [vocabularies.CONTROL_TYPE if token in MARKS else kind for token, kind in zip(tokens, types, strict=True)]
    if not how.with_image_token:
        own = "<image_soft_token>" if tiny.name == "gemma3" else "<image>"
        tokens = ["<unused0>" if token == own else token for token in tokens]
    padding = size - len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*tokens, *(f"[PAD{number}]" for number in range(padding))])
    writer.add_token_types([*types, *[_UNUSED_TYPE] * padding])
    writer.add_token_merges(given["tokenizer.ggml.merges"])
    writer.add_eos_token_id(given["tokenizer.ggml.eos_token_id"])
    writer.add_add_bos_token(False)


def _write_pieces(writer: gguf.GGUFWriter, size: int) -> None:
    given = vocabularies.spm_metadata(vocabularies.sentencepiece_model())
    padding = size - len(given["tokenizer.ggml.tokens"])
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*given["tokenizer.ggml.tokens"], *(f"[PAD{number}]" for number in range(padding))])
    writer.add_token_scores([*given["tokenizer.ggml.scores"], *[-1000.0] * padding])
    writer.add_token_types([*given["tokenizer.ggml.token_type"], *[_UNUSED_TYPE] * padding])
    for role in ("bos", "eos"):
        getattr(writer, f"add_{role}_token_id")(given[f"tokenizer.ggml.{role}_token_id"])
    writer.add_unk_token_id(given["tokenizer.ggml.unknown_token_id"])


# -- the tower ---------------------------------------------------------------------------------------------------------


def write_mmproj(path: Path, tiny: TinyVision, how: Conversion | None = None) -> Path:
    how = how or Conversion()
    writer = gguf.GGUFWriter(path, "clip")
    is_legacy = tiny.name in _LEGACY and how.legacy
    _write_shape(writer, tiny, is_legacy)
    _MORE[tiny.name](writer, tiny)
    for key, value in how.metadata:
        _say(writer, key, value)
    for name, values in _tower_tensors(tiny, is_legacy):
        if name != how.without:
            _add(writer, name, values, how.kind)
    return _written(writer, path)


def _say(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """A value in place of the one that is there; None: nothing."""
    writer.kv_data[0].pop(key, None)
    match value:
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)
        case int():
            writer.add_uint32(key, value)


def _write_shape(writer: gguf.GGUFWriter, tiny: TinyVision, is_legacy: bool) -> None:
    config, size = tiny.model.config.vision_config, tiny.model.config.text_config.hidden_size
    if is_legacy:
        writer.add_bool("clip.has_text_encoder", False)
        writer.add_bool("clip.has_llava_projector", True)
    else:
        writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_vision_projection_dim(512 if is_legacy else size)
    places = getattr(config, "num_position_embeddings", None)
    usual = 560 if places is None else int(places**0.5 * config.patch_size)
    writer.add_vision_image_size(_first(getattr(config, "image_size", usual)))
    writer.add_vision_patch_size(_first(config.patch_size))
    embed_dim = getattr(config, "embed_dim", None)
    writer.add_vision_embedding_length(embed_dim or config.hidden_size)
    # of Qwen2-VL the converter takes another field for it, whose number is the language model's width
    writer.add_vision_feed_forward_length(config.hidden_size if embed_dim else config.intermediate_size)
    depth = getattr(config, "depth", None) or config.num_hidden_layers
    writer.add_vision_block_count(depth - is_legacy)
    writer.add_vision_head_count(getattr(config, "num_heads", None) or config.num_attention_heads)
    eps = getattr(config, "layer_norm_eps", 1e-5 if tiny.name == "pixtral" else 1e-6)
    writer.add_vision_attention_layernorm_eps(eps)
    writer.add_vision_image_mean(list(tiny.processor.image_mean))
    writer.add_vision_image_std(list(tiny.processor.image_std))


def _llava(writer: gguf.GGUFWriter, tiny: TinyVision) -> None:
    """The old converter's; the first files do not even name the projector."""
    writer.add_vision_use_gelu(False)


def _llava_next(writer: gguf.GGUFWriter, tiny: TinyVision) -> None:
    writer.add_string("clip.projector_type", "mlp")
    writer.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
    flat = [side for pair in tiny.processor.image_grid_pinpoints for side in pair]
    writer.add_array("clip.vision.image_grid_pinpoints", flat)
    writer.add_vision_use_gelu(False)


def _qwen(writer: gguf.GGUFWriter, tiny: TinyVision) -> None:
    kinds, config = gguf.VisionProjectorType, tiny.model.config.vision_config
    kind = {"qwen2_vl": kinds.QWEN2VL, "qwen2_5_vl": kinds.QWEN25VL, "qwen3_vl": kinds.QWEN3VL}[tiny.name]
    writer.add_clip_projector_type(kind)
    if kind == kinds.QWEN3VL:
        writer.add_vision_use_gelu(True)
        writer.add_vision_spatial_merge_size(config.spatial_merge_size)
        writer.add_vision_is_deepstack_layers(
            [layer in config.deepstack_visual_indexes for layer in range(config.depth)]
        )
    if kind == kinds.QWEN25VL:
        writer.add_vision_use_silu(True)
        writer.add_vision_n_wa_pattern(config.fullatt_block_indexes[0] + 1)
        writer.add_uint32("clip.vision.window_size", config.window_size)
    size = tiny.processor.size
    writer.add_uint32("clip.vision.image_min_pixels", size["shortest_edge"])
    writer.add_uint32("clip.vision.image_max_pixels", size["longest_edge"])


def _gemma3(writer: gguf.GGUFWriter, tiny: TinyVision) -> None:
    config = tiny.model.config
    writer.add_clip_projector_type(gguf.VisionProjectorType.GEMMA3)
    writer.add_vision_use_gelu(True)
    side = config.vision_config.image_size // config.vision_config.patch_size
    writer.add_vision_projector_scale_factor(side // int(config.mm_tokens_per_image**0.5))


def _idefics3(writer: gguf.GGUFWriter, tiny: TinyVision) -> None:
    writer.add_clip_projector_type(gguf.VisionProjectorType.IDEFICS3)
    writer.add_vision_use_gelu(True)
    writer.add_vision_projector_scale_factor(tiny.model.config.scale_factor)
    writer.add_vision_preproc_image_size(tiny.processor.size["longest_edge"])


def _internvl(writer: gguf.GGUFWriter, tiny: TinyVision) -> None:
    writer.add_clip_projector_type(gguf.VisionProjectorType.INTERNVL)
    writer.add_vision_use_gelu(True)
    writer.add_vision_projector_scale_factor(int(1 / tiny.model.config.downsample_ratio))
    writer.add_vision_preproc_min_tiles(tiny.processor.min_patches)
    writer.add_vision_preproc_max_tiles(tiny.processor.max_patches)


def _pixtral(writer: gguf.GGUFWriter, tiny: TinyVision) -> None:
    writer.add_clip_projector_type(gguf.VisionProjectorType.PIXTRAL)
    assert tiny.model.config.vision_config.hidden_act == "gelu"
    writer.add_vision_use_gelu(True)
    # published models have one number for both: the longest side that is read
    _say(writer, "clip.vision.image_size", tiny.processor.size["longest_edge"])


_MORE: dict[str, Callable[[gguf.GGUFWriter, TinyVision], None]] = {
    "llava": _llava,
    "llava_next": _llava_next,
    "qwen2_vl": _qwen,
    "qwen2_5_vl": _qwen,
    "qwen3_vl": _qwen,
    "gemma3": _gemma3,
    "idefics3": _idefics3,
    "internvl": _internvl,
    "pixtral": _pixtral,
}


def _tower_tensors(tiny: TinyVision, is_legacy: bool) -> Iterator[tuple[str, Tensor]]:
    config = tiny.model.config.vision_config
    depth = getattr(config, "depth", None) or config.num_hidden_layers
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, max(depth, _MOST_MATRICES))
    tensors = load_file(tiny.folder / "model.safetensors")
    if tiny.name == "pixtral":
        embedding = tensors["language_model.model.embed_tokens.weight"]
        yield "v.token_embd.img_break", embedding[tiny.tokenizer.token_to_id("[IMG_BREAK]")]
    for name, values in tensors.items():
        if name.startswith((*_TOWERS, "image_newline")) and ".head." not in name:
            plain = name.replace("model.visual.", "visual.")
            for given, each in _pieces(plain, values, tiny.name):
                if is_legacy:
                    yield from _by_the_old_converter(given, each, depth - 1)
                elif given.startswith("v."):
                    yield given, each
                else:
                    yield _table_name(names, _as_older(given, config), tiny.name), _turned(given, each, config)


def _pieces(name: str, values: Tensor, family: str) -> Iterator[tuple[str, Tensor]]:
    """Queries, keys and values apart, but of Qwen3-VL, and a kernel for each frame."""
    if ".qkv." in name and family != "qwen3_vl":
        yield from ((name.replace("qkv", letter), part) for letter, part in zip("qkv", values.chunk(3), strict=True))
    elif name == "visual.patch_embed.proj.weight":
        yield "v.patch_embd.weight", values[:, :, 0]
        yield "v.patch_embd.weight.1", values[:, :, 1]
    else:
        yield name, values


def _as_older(name: str, config: Any) -> str:
    """Qwen3-VL's projectors: the last one by the names of Qwen2-VL's, the others by the layers that they are of."""
    last = {"visual.merger.linear_fc1": "mlp.0", "visual.merger.linear_fc2": "mlp.2", "visual.merger.norm": "ln_q"}
    for new, old in last.items():
        name = name.replace(new, f"visual.merger.{old}")
    if not name.startswith(_DEEP):
        return name
    number, _, rest = name.removeprefix(_DEEP).partition(".")
    return f"model.{_DEEP}{config.deepstack_visual_indexes[int(number)]}.{rest}"


def _turned(name: str, values: Tensor, config: Any) -> Tensor:
    if name.startswith("vision_tower.transformer.") and ("q_proj" in name or "k_proj" in name):
        heads = SimpleNamespace(
            num_attention_heads=config.num_attention_heads, num_key_value_heads=config.num_attention_heads
        )
        return laid_out("llama", name, values, heads)
    return values + 1 if "mm_soft_emb_norm" in name else values


def _table_name(names: gguf.TensorNameMap, name: str, family: str) -> str:
    """By the table of the `gguf` package, which knows names with and without what newer checkpoints leave out."""
    stem, _, ending = name.rpartition(".")
    if "lambda_" in name or "embeddings.position_embeddings" in name:
        stem, ending = name, "weight"
    elif ending not in ("weight", "bias"):  # one that is called by what it is alone
        stem, ending = name.removesuffix("_weight"), "weight" if name.endswith("_weight") else ""
    stem = _INTERNVL.get(stem, stem) if family == "internvl" else stem
    tries = (stem, stem.replace("vision_tower.", "vision_tower.vision_model."), f"model.{stem}")
    found = next((known for known in map(names.get_name, tries) if known is not None), None)
    assert found is not None, name
    return f"{found}.{ending}" if ending else found


def _by_the_old_converter(name: str, values: Tensor, layers: int) -> Iterator[tuple[str, Tensor]]:
    """Without the last layer and the norm behind it, and with an MLP's matrices called by each other's names."""
    if f".layers.{layers}." in name or "post_layernorm" in name:
        return
    if name == "image_newline":
        yield "model.image_newline", values
        return
    renamed = name.replace("multi_modal_projector.linear_1", "mm.0").replace("multi_modal_projector.linear_2", "mm.2")
    for old, new in {
        "vision_tower.": "v.",
        "encoder.layers": "blk",
        "embeddings.": "",
        "_proj": "",
        "self_attn.": "attn_",
        "layer_norm": "ln",
        "layrnorm": "ln",
        "mlp.fc1": "ffn_down",
        "mlp.fc2": "ffn_up",
        "embedding": "embd",
    }.items():
        renamed = renamed.replace(old, new)
    yield renamed, values


def _first(value: Any) -> int:
    return int(value[0] if isinstance(value, list | tuple) else value)


def stored_kind(name: str, values: Tensor, kind: str) -> str:
    """Vectors, positions and kernels stay plain, and rows that no whole blocks fill have 16 bits."""
    if values.squeeze().dim() != 2 or "position_emb" in name:
        return "F32"
    return "F16" if kind == "Q8_0" and values.shape[-1] % _BLOCK else kind


def _add(writer: gguf.GGUFWriter, name: str, values: Tensor, kind: str) -> None:
    number = gguf.GGMLQuantizationType[stored_kind(name, values, kind)]
    stored = np.ascontiguousarray(values.float().numpy())
    writer.add_tensor(name, quants.quantize(stored, number), raw_dtype=number)


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def round_tower(tiny: TinyVision, kind: str) -> None:
    """Leave in the folder what a type leaves of the tower's matrices."""
    tensors = load_file(tiny.folder / "model.safetensors")
    for name, values in tensors.items():
        if name.startswith(_TOWERS) and ".head." not in name:
            tensors[name] = rounded(values, stored_kind(name, values, kind)).view(values.shape)
    save_file(tensors, tiny.folder / "model.safetensors", {"format": "pt"})
