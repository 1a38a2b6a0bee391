"""Phi-3.5-vision beyond what all families are tested for: crops in their published size, prompts as its own processor
tokenizes them, and what its files may hold."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from quire import LLM, SamplingParams
from quire.cli.main import main
from quire.core.errors import CheckpointError, InvalidRequest
from quire.core.media import MediaItem, Pixels
from quire.layers.policy import WeightPolicy
from quire.models.build import build_model
from quire.models.cropped_pictures import CroppedPictures
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_checkpoint
from quire.models.loading.header import config_facts, read_model_facts
from quire.models.vision_tower import scaled
from quire.multimodal.pictures import BadMedia, prepare
from quire.multimodal.processor import MediaProcessor
from quire.multimodal.read_processors import read_processors
from quire.multimodal.recipes import Cooked, Crops
from quire.serving.async_llm import AsyncLLM
from tests.multimodal.phi3_vision import TEMPLATE, Phi3Pictures, beginning
from tests.multimodal.tiny_vision import TinyVision, make_vision, picture

SETTINGS: dict[str, Any] = {"dtype": "float32", "gpu_memory_utilization": 0.05, "max_model_len": 512}
IMAGES = [picture(60, 80, 1), picture(90, 30, 2), picture(20, 20, 3)]
ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
SIDE, TOKENS = 336, 12
PUBLISHED: dict[str, Any] = {
    "architectures": ["Phi3VForCausalLM"],
    "model_type": "phi3_v",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32064,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "sliding_window": 262144,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": {"type": "su", "short_factor": [1.05] * 48, "long_factor": [1.5] * 48},
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "embd_layer": {
        "embedding_cls": "image",
        "hd_transform_order": "sub_glb",
        "projection_cls": "mlp",
        "use_hd_transform": True,
        "with_learnable_separator": True,
    },
    "img_processor": {
        "image_dim_out": 1024,
        "model_name": "openai/clip-vit-large-patch14-336",
        "name": "clip_vision_model",
        "num_img_tokens": 144,
    },
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyVision:
    return make_vision("phi3_v", tmp_path_factory.mktemp("phi3_v"))


def published(folder: Path, **preprocessor: Any) -> Path:
    """A folder with the config that is published, and of its vocabulary the mark of images."""
    (folder / "config.json").write_text(json.dumps(PUBLISHED))
    added = {"32044": {"content": "<|image|>", "special": True}}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    (folder / "preprocessor_config.json").write_text(json.dumps({"num_img_tokens": 144, **preprocessor}))
    return folder


# --- crops -----------------------------------------------------------------------------------------------------------

SIZES = [(1, 1), (336, 336), (335, 337), (337, 335), (44, 57), (1008, 1344), (90, 1000), (1000, 90), (3, 511)]
"""Heights and widths; the most are odd, and two are far from square."""


@pytest.mark.parametrize("most", [1, 4, 16])
@pytest.mark.parametrize("size", SIZES)
def test_crops_of_the_published_size(size: tuple[int, int], most: int) -> None:
    image, oracle = picture(*size, seed=most), Phi3Pictures(SIDE, most, TOKENS)
    wanted = oracle([image], return_tensors="pt")
    pictures, tiles = prepare(image, Crops(SIDE, most))
    assert tiles == wanted["tiles"][0]
    pixels = _scaled(pictures, oracle)
    torch.testing.assert_close(pixels.permute(0, 3, 1, 2), wanted["pixel_values"], atol=1e-5, rtol=1e-5)
    whole = _cropped().whole(pixels, tiles).permute(0, 3, 1, 2)
    torch.testing.assert_close(whole, wanted["wholes"], atol=1e-4, rtol=1e-5)


def _scaled(pictures: Any, oracle: Phi3Pictures) -> torch.Tensor:
    given = oracle.to_dict()
    pixels = Pixels(pictures.tobytes(), pictures.shape, 1 / 255, tuple(given["image_mean"]), tuple(given["image_std"]))
    return scaled(pixels, torch.device("cpu"))


def _cropped() -> CroppedPictures:
    vision = config_facts("published", PUBLISHED).spec.vision
    assert vision is not None
    assert vision.crops is not None
    return CroppedPictures(vision.crops, vision.projector.merge, WeightPolicy(torch.float32, torch.device("cpu")))


@pytest.mark.parametrize("most", [1, 4, 16])
@pytest.mark.parametrize("size", [*SIZES, (480, 640), (1, 80), (80, 1), (4000, 3000)])
def test_an_image_has_the_tokens_that_its_size_says(size: tuple[int, int], most: int, tmp_path: Path) -> None:
    processor = read_processors(published(tmp_path, num_crops=most))["image"]
    assert _num_tokens(processor, size) == Phi3Pictures(SIDE, most, TOKENS).num_tokens(size[1], size[0])


def test_counts_that_others_give_for_the_published_processor(tmp_path: Path) -> None:
    """vLLM's own examples said 1,921 for an image of 1344 × 1008 in 16 crops; the most are 17 rows of crops."""
    processor = read_processors(published(tmp_path, num_crops=16))["image"]
    assert _num_tokens(processor, (1008, 1344)) == 1921
    assert _num_tokens(processor, (8000, 500)) == 17 * 144 + 1 + 17 * 12


def _num_tokens(processor: MediaProcessor, size: tuple[int, int]) -> int:
    _, tiles = prepare(Image.new("RGB", (size[1], size[0])), processor.recipe)
    [count] = processor.pieces(Cooked(b"", (0, 0, 0, 3), size, tiles))
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize("size", [(1, 1345), (1345, 1)])
def test_what_shrinks_to_nothing_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(BadMedia, match="of which nothing would be left"):
        prepare(picture(*size), Crops(SIDE, 4))
    _, tiles = prepare(picture(*size), Crops(SIDE, 16))
    assert max(tiles) == 16


@pytest.mark.parametrize("at_once", [1, 12, 4096])
def test_embeddings_are_those_of_the_small_steps(tiny: TinyVision, at_once: int) -> None:
    """Also where an image's crops and the whole of it are encoded one after the other."""
    checkpoint = open_checkpoint(tiny.folder)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, torch.device("cpu")))
    load_weights(model, checkpoint)
    processor = read_processors(tiny.folder)["image"]
    items = [_item(image, processor) for image in IMAGES]
    assert model.vision is not None
    with torch.inference_mode():
        found = model.vision(items, at_once)
        wanted = tiny.model.images(tiny.processor(IMAGES, return_tensors="pt"))
    for each, expected in zip(found, wanted, strict=True):
        assert expected.std() > 0.1, "large enough for the bound below to say something"
        torch.testing.assert_close(each, expected, atol=1e-4, rtol=1e-5)


def _item(image: Image.Image, processor: MediaProcessor) -> MediaItem:
    pictures, tiles = prepare(image, processor.recipe)
    pixels = Pixels(pictures.tobytes(), pictures.shape, processor.rescale, processor.mean, processor.std)
    return MediaItem(((0, 1),), b"", pixels, (image.height, image.width), tiles)


# --- prompts ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tiny: TinyVision, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beginning(tiny.folder, tmp_path_factory.mktemp("begins") / "model", TEMPLATE)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    found = LLM(str(folder), **SETTINGS)
    yield found
    found.close()


def _tokens(folder: Path, tiny: TinyVision, text: str, images: Sequence[Image.Image]) -> list[int]:
    """As the checkpoint's own processor makes them: texts between marks one by one, and as many times the negative
    number of an image as it has tokens."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [tokenizer.encode(each).ids for each in re.split(r"<\|image_\d+\|>", text)]
    found = list(texts[0])
    marks = [int(number) for number in re.findall(r"<\|image_(\d+)\|>", text)]
    for number, behind in zip(marks, texts[1:], strict=True):
        size = images[number - 1].size
        found += [-number] * tiny.processor.num_tokens(*size) + behind
    return [token if token >= 0 else tiny.token for token in found]


@pytest.mark.parametrize(
    "text",
    [
        "<|user|>\n<|image_1|>\nWhat is it?<|end|>\n<|assistant|>\n",
        "<|image_1|>",
        "<|user|>\n<|image_1|>\n<|image_2|> and<|image_3|><|end|>\n",
    ],
)
def test_prompts_have_the_tokens_that_the_checkpoints_own_processor_makes(
    llm: LLM, folder: Path, tiny: TinyVision, text: str
) -> None:
    images = IMAGES[: text.count("<|image_")]
    [output] = llm.generate({"prompt": text, "multi_modal_data": {"image": images}}, ONE_TOKEN, use_tqdm=False)
    wanted = _tokens(folder, tiny, text, images)
    assert output.prompt_token_ids == wanted
    begin = llm.get_tokenizer().token_to_id("<|im_start|>")
    assert wanted.count(begin) == len(images) + 1, "every text begins anew"


def test_async_llm_reads_the_same_prompt(folder: Path, tiny: TinyVision) -> None:
    text = "<|user|>\n<|image_1|>\n<|image_2|>\nWhat is it?<|end|>\n<|assistant|>\n"

    async def run() -> list[int]:
        async with await AsyncLLM.create(str(folder), **SETTINGS) as several:
            prompt = {"prompt": text, "multi_modal_data": {"image": IMAGES[:2]}}
            return [output.prompt_token_ids async for output in several.generate(prompt, ONE_TOKEN)][-1]

    assert asyncio.run(run()) == _tokens(folder, tiny, text, IMAGES[:2])


@pytest.mark.parametrize("numbers", [["2", "1"], ["1", "1"], ["2", "3"], ["0"], ["01"], ["9" * 5000]])
def test_numbers_that_are_out_of_order_are_refused(llm: LLM, numbers: list[str]) -> None:
    text = "".join(f"<|image_{number}|>" for number in numbers)
    given = {"prompt": text, "multi_modal_data": {"image": IMAGES[: len(numbers)]}}
    with pytest.raises(InvalidRequest, match=r"count them from 1 in the order in which they stand.*<\|image_1\|>"):
        llm.generate(given, ONE_TOKEN, use_tqdm=False)


def test_every_image_needs_its_place(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match=r"marks 1 places .* comes with 2; .* written as '<\|image_1\|>'"):
        llm.generate({"prompt": "<|image_1|>", "multi_modal_data": {"image": IMAGES[:2]}}, ONE_TOKEN, use_tqdm=False)


def test_chats_become_what_the_checkpoints_own_template_and_processor_make(
    llm: LLM, folder: Path, tiny: TinyVision
) -> None:
    first, second, third = ({"type": "image_pil", "image_pil": image} for image in IMAGES)
    messages = [
        {"role": "user", "content": [first, second, {"type": "text", "text": "Which is larger?"}]},
        {"role": "assistant", "content": "The first."},
        {"role": "user", "content": [{"type": "text", "text": "And this: "}, third]},
    ]
    [output] = llm.chat(messages, ONE_TOKEN, use_tqdm=False)
    text = (
        "<|user|>\n<|image_1|>\n<|image_2|>\nWhich is larger?<|end|>\n<|assistant|>\nThe first.<|end|>\n"
        "<|user|>\nAnd this: <|image_3|>\n<|end|>\n<|assistant|>\n"
    )
    assert output.prompt_token_ids == _tokens(folder, tiny, text, IMAGES)


def test_chats_of_texts_alone_are_one_text_without_a_begin(llm: LLM) -> None:
    [output] = llm.chat([{"role": "user", "content": "What is it?"}], ONE_TOKEN, use_tqdm=False)
    text = "<|user|>\nWhat is it?<|end|>\n<|assistant|>\n"
    assert output.prompt_token_ids == llm.get_tokenizer().encode(text, add_special_tokens=False)


# --- files -----------------------------------------------------------------------------------------------------------


def _changed(tiny: TinyVision, folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    shutil.copytree(tiny.folder, folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


_WORDS, _WORDS_TOO = "model.embed_tokens.weight", "model.vision_embed_tokens.wte.weight"


@pytest.mark.parametrize("stored", [[_WORDS_TOO], [_WORDS, _WORDS_TOO]], ids=["the tower's alone", "both"])
def test_words_may_be_stored_where_the_tower_shares_them(tiny: TinyVision, stored: list[str], tmp_path: Path) -> None:
    tensors = load_file(tiny.folder / "model.safetensors")
    words = tensors.pop(_WORDS)
    start = "model.vision_embed_tokens.img_processor.vision_model."
    tensors[f"{start}embeddings.position_ids"] = torch.arange(17.0)[None]
    changed = _changed(tiny, tmp_path / "changed", {**tensors, **{name: words.clone() for name in stored}})
    _check_answers(tiny, changed)


def _check_answers(tiny: TinyVision, folder: Path, **settings: Any) -> None:
    llm = LLM(str(folder), **SETTINGS, **settings)
    try:
        prompt = llm.get_tokenizer().encode("One: <|image|> two: <|image|> what?", add_special_tokens=False)
        given = {"prompt_token_ids": prompt, "multi_modal_data": {"image": IMAGES[:2]}}
        params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
        [output] = llm.generate(given, params, use_tqdm=False)
    finally:
        llm.close()
    assert list(output.outputs[0].token_ids) == tiny.greedy(prompt, IMAGES[:2])


def test_torch_computes_the_same_as_the_native_core(tiny: TinyVision) -> None:
    _check_answers(tiny, tiny.folder, cpu_compute="exact")


def test_ranks_of_tensor_parallelism_compute_the_same(tiny: TinyVision) -> None:
    _check_answers(tiny, tiny.folder, tensor_parallel_size=2)


@pytest.mark.parametrize("name", ["sub_GN", "glb_GN", "img_projection.2.bias"])
def test_a_missing_tensor_is_named(tiny: TinyVision, name: str, tmp_path: Path) -> None:
    tensors = load_file(tiny.folder / "model.safetensors")
    del tensors[f"model.vision_embed_tokens.{name}"]
    changed = _changed(tiny, tmp_path / "changed", tensors)
    with pytest.raises(CheckpointError, match=rf"lacks a tensor .*{re.escape(name)}"):
        read_model_facts(str(changed))


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("embd_layer", {"hd_transform_order": "glb_sub"}, "hd_transform_order 'glb_sub'; quire has 'sub_glb' alone"),
        ("embd_layer", {"use_hd_transform": False}, "use_hd_transform False"),
        ("embd_layer", {"with_learnable_separator": None}, "with_learnable_separator None"),
        ("embd_layer", {"projection_cls": "linear"}, "projection_cls 'linear'"),
        ("img_processor", {"model_name": "openai/clip-vit-base-patch16"}, "the tower 'openai/clip-vit-base-patch16'"),
        ("img_processor", {"type_feature": "cls_patch"}, "type_feature 'cls_patch'"),
        ("img_processor", {"image_dim_out": 768}, "image_dim_out 768; the tower makes 1024"),
        ("img_processor", {"layer_idx": "last"}, "'last'"),
    ],
)
def test_other_ways_to_lay_images_are_refused(part: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        config_facts("changed", {**PUBLISHED, part: {**PUBLISHED[part], **change}})


def test_the_processor_must_belong_to_the_tower(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="num_img_tokens 100; the model's tower makes 144"):
        read_processors(published(tmp_path, num_img_tokens=100))


def test_the_published_config_has_the_parameters_that_its_authors_give() -> None:
    """4.15 billion with the tower's last layer, which is not read."""
    facts = config_facts("published", PUBLISHED)
    vision = facts.spec.vision
    assert vision is not None
    assert len(vision.layers) == 23
    assert (vision.projector.up.columns, vision.projector.up.rows) == (4096, 3072)
    last_layer = 4 * (1024 * 1024 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024
    assert round((facts.num_parameters + last_layer) / 1e9, 2) == 4.15
    assert [rope.kind for rope in facts.spec.ropes] == ["longrope"]
    assert facts.spec.ropes[0].changes_at == 4096
    assert set(facts.spec.windows) == {None}


def test_a_plan_counts_the_tower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = published(tmp_path, num_crops=4)
    assert main(["plan", str(folder), "--device", "h200"]) == 0
    page = capsys.readouterr().out
    assert "Phi3VForCausalLM, 4.13 B parameters, 32 layers, 32 KV heads × 96, context 131,072" in page
    assert "8.27 GB" in page, "of weights"
    assert "MiB for media" in page
