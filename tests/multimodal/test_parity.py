"""Every family beside transformers on the same tiny weights: what processors give, and greedy answers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from quire import LLM, SamplingParams
from quire.config.multimodal import MultimodalConfig
from quire.core.media import Pixels
from quire.models.vision_tower import scaled
from quire.multimodal.pictures import decode, prepare
from quire.multimodal.read_processors import read_processors
from quire.multimodal.recipes import Limits
from tests.multimodal.tiny_vision import FAMILIES, NESTED, TinyVision, as_bytes, make_vision, picture
from tests.rarely import rarely

GREEDY = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
_LIMITS = Limits(MultimodalConfig().media_max_pixels)


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyVision:
    return make_vision(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llm(tiny: TinyVision) -> Iterator[LLM]:
    model = LLM(str(tiny.folder), dtype="float32", gpu_memory_utilization=0.05, enable_prefix_caching=False)
    yield model
    model.close()


def _upright(path_bytes: bytes) -> Image.Image:
    """As transformers' `load_image` hands a file to a processor."""
    return decode(path_bytes, _LIMITS)


_PICTURES = {
    "usual": as_bytes(picture(90, 161, 1)),
    "tall": as_bytes(picture(221, 37, 2)),
    "small": as_bytes(picture(3, 5, 3)),
    "one pixel": as_bytes(picture(1, 1, 4)),
    "alpha": as_bytes(picture(61, 80, 5, "RGBA")),
    "gray": as_bytes(picture(57, 44, 6, "L")),
    "jpeg": as_bytes(picture(64, 90, 7), "JPEG", quality=90),
    "animated": as_bytes(picture(40, 40, 8), "GIF", save_all=True, append_images=[picture(40, 40, 9)]),
    "large": as_bytes(picture(1500, 1100, 10), "JPEG"),
}


@pytest.mark.parametrize("name", _PICTURES)
def test_pixels_are_those_of_the_checkpoints_own_processor(tiny: TinyVision, name: str) -> None:
    processor = read_processors(tiny.folder)["image"]
    image = _upright(_PICTURES[name])
    pictures, _ = prepare(image, processor.recipe)
    scaling = (processor.rescale, processor.mean, processor.std, processor.is_rounded)
    pixels = Pixels(pictures.tobytes(), pictures.shape, *scaling)  # type: ignore[arg-type]
    found = scaled(pixels, torch.device("cpu")).permute(0, 3, 1, 2)
    given = tiny.processor([[image]] if tiny.name in NESTED else [image], return_tensors="pt")
    wanted = given["pixel_values"].float()
    if "image_grid_thw" in given:
        wanted = _unpatched(wanted, given["image_grid_thw"][0].tolist(), tiny.processor.patch_size, 2)
    torch.testing.assert_close(found, wanted.reshape(found.shape), atol=1e-5, rtol=1e-5)


def _unpatched(patches: torch.Tensor, grid: list[int], size: int, merge: int) -> torch.Tensor:
    """Qwen's rows of patches as the picture that they were cut from, of the first of two equal frames."""
    _, rows, columns = grid
    cut = patches.view(rows // merge, columns // merge, merge, merge, 3, 2, size, size)[:, :, :, :, :, 0]
    return cut.permute(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, rows * size, columns * size)


def test_pictures_are_turned_as_their_exif_says() -> None:
    image = picture(20, 30)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = decode(as_bytes(image, "PNG", exif=exif), _LIMITS)
    assert turned.size == (20, 30)
    assert turned.tobytes() == image.transpose(Image.Transpose.ROTATE_270).tobytes()


@pytest.mark.parametrize("images", [[], [(90, 161)], [(90, 161), (221, 60)]], ids=["none", "one", "two"])
def test_greedy_answers_are_those_of_transformers(tiny: TinyVision, llm: LLM, images: list[tuple[int, int]]) -> None:
    pictures = [picture(*size, seed) for seed, size in enumerate(images)]
    prompt = tiny.prompt(len(images))
    assert _answer(llm, prompt, pictures) == tiny.greedy(prompt, pictures)


def test_logits_are_those_of_transformers(tiny: TinyVision, llm: LLM) -> None:
    pictures = [picture(90, 161, 1), picture(60, 60, 2)]
    prompt = tiny.prompt(2)
    with torch.inference_mode():
        wanted = torch.log_softmax(tiny.model(**tiny.prepared(prompt, pictures)).logits[0, -1], dim=-1)
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=20)
    given = {"prompt_token_ids": prompt, "multi_modal_data": {"image": pictures}}
    [output] = llm.generate(given, params, use_tqdm=False)
    assert output.outputs[0].logprobs is not None
    for token, found in output.outputs[0].logprobs[0].items():
        assert abs(found.logprob - float(wanted[token])) < 1e-4


@pytest.mark.parametrize("budget", rarely([7, 3, 16], every=3))
def test_chunks_may_cut_inside_an_image(tiny: TinyVision, budget: int) -> None:
    pictures = [picture(90, 161, 1), picture(221, 60, 2)]
    if tiny.name == "gemma3":  # a step takes an image's nine tokens or none
        budget += 9
    settings = {"max_num_batched_tokens": budget, "max_num_seqs": 2, "gpu_memory_utilization": 0.05}
    llm = LLM(str(tiny.folder), dtype="float32", **settings)
    try:
        prompt = tiny.prompt(2)
        wanted = tiny.greedy(prompt, pictures, 8)
        assert _answer(llm, prompt, pictures, 8) == wanted
        assert _answer(llm, prompt, pictures, 8) == wanted, "out of the prefix cache"
        assert _answer(llm, prompt, pictures[::-1], 8) == tiny.greedy(prompt, pictures[::-1], 8)
    finally:
        llm.close()


def test_prompts_of_all_kinds_share_steps(tiny: TinyVision, llm: LLM) -> None:
    counts = (0, 1, 2, 0, 1)
    pictures = [[picture(50 + 20 * place, 70, place + number) for number in range(n)] for place, n in enumerate(counts)]
    prompts = [tiny.prompt(count) for count in counts]
    given = [
        {"prompt_token_ids": prompt, "multi_modal_data": {"image": images}}
        for prompt, images in zip(prompts, pictures, strict=True)
    ]
    found = [list(output.outputs[0].token_ids) for output in llm.generate(given, GREEDY, use_tqdm=False)]
    assert found == [tiny.greedy(prompt, images) for prompt, images in zip(prompts, pictures, strict=True)]


def _answer(llm: LLM, prompt: list[int], images: list[Image.Image], count: int = 32) -> list[int]:
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    [output] = llm.generate({"prompt_token_ids": prompt, "multi_modal_data": {"image": images}}, params, use_tqdm=False)
    return list(output.outputs[0].token_ids)


def test_a_model_of_texts_alone_names_itself(tiny_chat: Path) -> None:
    llm = LLM(str(tiny_chat), gpu_memory_utilization=0.05)
    try:
        with pytest.raises(ValueError, match="reads texts alone"):
            llm.generate({"prompt": "hi", "multi_modal_data": {"image": picture(4, 4)}}, use_tqdm=False)
    finally:
        llm.close()
