"""Videos: which frames are read and what becomes of them, and answers beside transformers' on the same tiny weights."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from quire import LLM, SamplingParams
from quire.core.errors import InvalidRequest
from quire.core.media import MediaItem, Pixels
from quire.models.vision_tower import scaled
from quire.multimodal.offline import files_of
from quire.multimodal.pictures import BadMedia
from quire.multimodal.positions import PositionRule, prompt_positions
from quire.multimodal.read_processors import read_processors
from quire.multimodal.recipes import Fixed, Frames, Job, Limits, Sampling, Whole
from quire.multimodal.videos import chosen_frames, cook_video
from tests.multimodal.clips import frames_of, make_clip
from tests.multimodal.tiny_vision import VIDEO_FAMILIES, Clip, TinyVision, make_vision, picture

_LIMITS = Limits(64 << 20)
_RATE, _COUNT = 8, 21


@pytest.fixture(scope="module", params=VIDEO_FAMILIES)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyVision:
    return make_vision(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llm(tiny: TinyVision) -> Iterator[LLM]:
    model = LLM(str(tiny.folder), dtype="float32", gpu_memory_utilization=0.05, enable_prefix_caching=False)
    yield model
    model.close()


@pytest.fixture(scope="module")
def file() -> bytes:
    return make_clip(_COUNT, _RATE)


def _clip(tiny: TinyVision, data: bytes, total: int, rate: float) -> Clip:
    """What the model's own rule reads of a file."""
    places = _PLACES[tiny.name](total, rate)
    frames = frames_of(data)
    return Clip([frames[place] for place in places], [place / rate for place in places], 2 * total / rate / len(places))


def _qwen2_places(total: int, rate: float) -> list[int]:
    """Two frames a second, four at least, an even number of them."""
    count = int(min(max(total / rate * 2, 4), total // 2 * 2)) // 2 * 2
    return [int(place) for place in torch.arange(0, total, total / count)]


def _qwen3_places(total: int, rate: float) -> list[int]:
    """Two frames a second, four at least, the first and the last among them."""
    count = min(max(int(total / rate * 2), 4), total)
    return [int(place) for place in np.linspace(0, total - 1, count).round()]


def _onevision_places(total: int, rate: float) -> list[int]:
    count = min(32, total)
    return [number * total // count for number in range(count)]


_PLACES = {
    "llava_onevision": _onevision_places,
    "qwen3_vl": _qwen3_places,
    "qwen3_vl_moe": _qwen3_places,
    "qwen2_vl": _qwen2_places,
    "qwen2_5_vl": _qwen2_places,
}


def _prompt(tiny: TinyVision, llm: LLM, text: str) -> list[int]:
    text = text.replace("VIDEO", tiny.video_mark).replace("IMAGE", tiny.mark)
    return llm.get_tokenizer().encode(text, add_special_tokens=False)


def _answer(llm: LLM, prompt: list[int], count: int = 32, **media: object) -> list[int]:
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    [output] = llm.generate({"prompt_token_ids": prompt, "multi_modal_data": media}, params, use_tqdm=False)
    return list(output.outputs[0].token_ids)


def test_frames_are_those_that_the_models_rule_reads(tiny: TinyVision, file: bytes) -> None:
    processor = read_processors(tiny.folder)["video"]
    cooked = cook_video(Job(file, processor.recipe, _LIMITS))
    clip = _clip(tiny, file, _COUNT, _RATE)
    mark = tiny.tokenizer.encode(tiny.video_mark, add_special_tokens=False).ids
    given = tiny.prepared(mark, [], [clip])["pixel_values_videos"]
    pixels = Pixels(cooked.data, cooked.shape, processor.rescale, processor.mean, processor.std)
    found = scaled(pixels, torch.device("cpu"))
    if "qwen" in tiny.name:
        size, (count, height, width, _) = tiny.processor.patch_size, cooked.shape
        cut = given.view(count // 2, height // size // 2, width // size // 2, 2, 2, 3, 2, size, size)
        wanted = cut.permute(0, 6, 1, 3, 7, 2, 4, 8, 5).reshape(found.shape)
        assert cooked.seconds == pytest.approx(clip.seconds)
    else:
        wanted = given[0].permute(0, 2, 3, 1)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert cooked.times[: len(clip.times)] == pytest.approx(clip.times)


@pytest.mark.parametrize(
    "text", ["VIDEO and what?", "A IMAGE then VIDEO and what?", "First VIDEO now IMAGE and VIDEO?"]
)
def test_greedy_answers_are_those_of_transformers(tiny: TinyVision, llm: LLM, file: bytes, text: str) -> None:
    count = 9 if "qwen" in tiny.name else _COUNT  # transformers' OneVision takes videos of equally many frames alone
    other = make_clip(count, 3, (64, 96))
    clips = [_clip(tiny, file, _COUNT, _RATE), _clip(tiny, other, count, 3)][: text.count("VIDEO")]
    images = [picture(90, 161, 5)][: text.count("IMAGE")]
    prompt = _prompt(tiny, llm, text)
    videos = [file, other][: len(clips)]
    assert _answer(llm, prompt, image=images, video=videos) == tiny.greedy(prompt, images, videos=clips)


@pytest.mark.parametrize("budget", [5, 16])
def test_chunks_may_cut_inside_a_video(tiny: TinyVision, file: bytes, budget: int) -> None:
    settings = {"max_num_batched_tokens": budget, "max_num_seqs": 2, "gpu_memory_utilization": 0.05}
    llm = LLM(str(tiny.folder), dtype="float32", **settings)
    try:
        prompt = _prompt(tiny, llm, "See IMAGE and VIDEO what is it?")
        images = [picture(60, 60, 2)]
        wanted = tiny.greedy(prompt, images, 8, [_clip(tiny, file, _COUNT, _RATE)])
        assert _answer(llm, prompt, 8, image=images, video=file) == wanted
        assert _answer(llm, prompt, 8, image=images, video=file) == wanted, "out of the prefix cache"
    finally:
        llm.close()


def test_arrays_are_read_frame_by_frame(tiny: TinyVision, llm: LLM, file: bytes) -> None:
    frames = frames_of(file)[:6]
    prompt = _prompt(tiny, llm, "VIDEO what is it?")
    clip = Clip(frames, [place / 2 for place in range(6)], 1.0)
    given = (np.stack([np.asarray(frame) for frame in frames]), {"fps": 2.0})
    assert _answer(llm, prompt, video=given) == tiny.greedy(prompt, [], videos=[clip])


# --- sampling and sizes ----------------------------------------------------------------------------------------------

_ALL = Sampling("spread", None, 1 << 20)


@pytest.mark.parametrize(
    ("sampling", "total", "rate", "most", "wanted"),
    [
        (Sampling("steps", 2.0, None, 4, 768, 2), 100, 10, 128, list(range(0, 100, 5))),
        (Sampling("steps", 2.0, None, 4, 768, 2), 7, 30, 128, [0, 1, 3, 5]),
        (Sampling("steps", 2.0, None, 4, 768, 2), 3, 30, 128, [0, 1]),
        (Sampling("steps", 2.0, None, 4, 768, 2), 1, 30, 128, [0]),
        (Sampling("steps", 2.0, None, 4, 768, 2), 1000, 10, 8, list(range(0, 1000, 125))),
        (Sampling("spread", 2.0, None, 4, 768), 10, 10, 128, [0, 3, 6, 9]),
        (Sampling("spread", None, 3), 9, 10, 128, [0, 4, 8]),
        (Sampling("steps", None, 8), 5, 10, 128, [0, 1, 2, 3, 4]),
    ],
)
def test_frames_are_chosen_by_rule(sampling: Sampling, total: int, rate: float, most: int, wanted: list[int]) -> None:
    assert chosen_frames(total, rate, sampling, most) == wanted


@pytest.mark.parametrize(
    ("form", "codec"), [("mp4", "mpeg4"), ("matroska", "ffv1"), ("webm", "libvpx"), ("avi", "mpeg4"), ("gif", "gif")]
)
def test_files_of_all_kinds_are_read(form: str, codec: str) -> None:
    data = make_clip(6, 5, form=form, codec=codec)
    cooked = cook_video(Job(data, Frames(Fixed((24, 32), None, 3), _ALL), _LIMITS))
    assert cooked.shape == (6, 24, 32, 3)
    wanted = [np.asarray(frame.resize((32, 24), Image.Resampling.BICUBIC)) for frame in frames_of(data)]
    assert cooked.data == np.stack(wanted).tobytes()


@pytest.mark.parametrize("form", ["mp4", "matroska", "avi"])
def test_a_title_need_not_be_text(form: str) -> None:
    plain, titled = make_clip(4, 5, form=form), make_clip(4, 5, form=form, title="caf\u00e9 noir")
    in_latin1 = titled.replace("caf\u00e9".encode(), b"caf\xe9 ")
    assert in_latin1 != titled
    recipe = Frames(Fixed((24, 32), None, 3), _ALL)
    assert cook_video(Job(in_latin1, recipe, _LIMITS)).data == cook_video(Job(plain, recipe, _LIMITS)).data


def test_many_frames_are_read_smaller() -> None:
    recipe = Frames(Whole(4, 16, 1 << 20, 3), _ALL, 2)
    cooked = cook_video(Job(make_clip(9, 5), recipe, Limits(6400)))
    count, height, width, _ = cooked.shape
    assert count == 10, "the last moment is filled up"
    assert 9 * height * width <= 6400
    assert height % 4 == width % 4 == 0
    assert cooked.times[-1] == cooked.times[-2]


# --- positions -------------------------------------------------------------------------------------------------------


def _item(runs: tuple[tuple[int, int], ...], frames: int, seconds: float) -> MediaItem:
    pixels = Pixels(b"", (frames, 2, 1, 3), 1.0, (0.0,) * 3, (1.0,) * 3)  # type: ignore[arg-type]
    return MediaItem(runs, b"", pixels, kind="video", seconds=seconds)


def test_moments_stand_as_far_apart_as_they_last() -> None:
    video = _item(((1, 6),), 6, 1.5)
    axes, offset = prompt_positions(8, [video], PositionRule(1, 2.0))
    assert axes[0] == [0, 1, 1, 4, 4, 7, 7, 3]
    assert axes[1] == [0, 1, 2, 1, 2, 1, 2, 3]
    assert axes[2] == [0, 1, 1, 1, 1, 1, 1, 3]
    assert offset == 0, "later text goes on behind the largest number of all"


def test_moments_with_text_between_them_are_pictures() -> None:
    video = _item(((1, 2), (4, 2)), 4, 1.5)
    axes, offset = prompt_positions(7, [video], PositionRule(1))
    assert axes[0] == [0, 1, 1, 3, 4, 4, 6]
    assert axes[1] == [0, 1, 2, 3, 4, 5, 6]
    assert offset == 0


# --- what is refused -------------------------------------------------------------------------------------------------


def _refused(data: bytes, limits: Limits = _LIMITS) -> str:
    with pytest.raises(BadMedia) as failure:
        cook_video(Job(data, Frames(Fixed((24, 32), None, 3), _ALL), limits))
    return str(failure.value)


def test_what_is_no_video_is_refused() -> None:
    assert "no video that quire reads" in _refused(b"hello, I am a text")
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:1/secret.ts\n#EXT-X-ENDLIST\n"
    assert "no video that quire reads" in _refused(playlist)
    assert "cannot be decoded" in _refused(b"\0\0\0\x18ftypisom" + bytes(200))


def test_a_cut_file_is_refused() -> None:
    whole = make_clip(30, 5, form="avi")
    assert "cut off" in _refused(whole[: len(whole) // 2]) or "cannot be decoded" in _refused(whole[: len(whole) // 2])
    mp4 = make_clip(30, 5)
    assert "cannot be decoded" in _refused(mp4[: len(mp4) // 2])


def test_long_and_large_videos_are_refused() -> None:
    data = make_clip(20, 5)
    assert "longer than 3 seconds" in _refused(data, Limits(64 << 20, 128, 3.0))
    assert "64 × 96 pixels; 1,000 are the most" in _refused(data, Limits(1000))


def test_arrays_of_another_form_are_refused() -> None:
    [(_, data, _)] = files_of({"video": np.zeros((2, 4, 4), np.uint8)})
    assert "frames are uint8" in _refused(data)
    [(_, data, _)] = files_of({"video": np.zeros((9, 4, 4, 3), np.uint8)})
    assert "--media-max-frames" in _refused(data, Limits(64 << 20, 8))
    with pytest.raises(InvalidRequest, match="give bytes, a path"):
        files_of({"video": 5})


def test_a_model_without_videos_names_what_it_reads(tmp_path: Path, file: bytes) -> None:
    llava = make_vision("llava", tmp_path)
    llm = LLM(str(llava.folder), dtype="float32", gpu_memory_utilization=0.05)
    try:
        with pytest.raises(ValueError, match="of kind video; the model reads image alone"):
            llm.generate({"prompt": "hi", "multi_modal_data": {"video": file}}, use_tqdm=False)
    finally:
        llm.close()
