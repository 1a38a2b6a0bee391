"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: pictures of any size, and videos of which two frames are one moment."""

from collections.abc import Callable
from typing import Literal

from quire.multimodal.processor import MediaProcessor, Piece, ProcessorFiles, Processors
from quire.multimodal.recipes import Cooked, Frames, Sampling, Whole
from quire.multimodal.settings import BICUBIC, CLIP_MEAN, CLIP_STD, HALF, SCALED, Settings

_IMAGE = {
    **SCALED,
    "resample": BICUBIC,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
}
_VIDEO = {**_IMAGE, "min_frames": 4, "max_frames": 768, "max_video_tokens": 128_000}
_IMAGE_3 = {**_IMAGE, "image_mean": HALF, "image_std": HALF, "patch_size": 16}
_VIDEO_3 = {**_VIDEO, "image_mean": HALF, "image_std": HALF, "patch_size": 16, "max_video_tokens": 768}
_CAPPED = "cap_pixels_per_frame"
_IMAGE_PIXELS = (56 * 56, 28 * 28 * 1280)
_VIDEO_PIXELS = (128 * 28 * 28, 28 * 28 * 768)
_VIDEO_PIXELS_3 = (128 * 32 * 32, 32 * 32 * 768)
_FRAMES_A_SECOND = 2.0
"""Of Qwen's own code around its processor, which by itself leaves the choice of frames to who calls it."""


def qwen2_vl(files: ProcessorFiles) -> Processors:
    image, video = files.image.over(_IMAGE), files.video.over(_VIDEO)
    image, video = _with_bounds(image, _IMAGE_PIXELS), _with_bounds(video, _VIDEO_PIXELS)
    side, moment = _side(video), video.number("temporal_patch_size")

    def pieces(cooked: Cooked) -> list[Piece]:
        return [cooked.shape[0] // moment * _each(cooked, side)]

    all_pixels = int(video.number("max_video_tokens") * side**2 * 0.9) * moment if video.flag(_CAPPED) else None
    frames = Frames(_whole(video), _sampling(video, "steps", moment), moment, most_of_all=all_pixels)
    return {"image": _image(files, image), "video": _video(files, video, frames, pieces)}


def qwen3_vl(files: ProcessorFiles) -> Processors:
    """Each moment of a video stands by itself, behind the seconds at which it is."""
    image, video = files.image.over(_IMAGE_3), files.video.over(_VIDEO_3)
    image, video = _with_bounds(image, _IMAGE_PIXELS), _with_bounds(video, _VIDEO_PIXELS_3)
    side, moment = _side(video), video.number("temporal_patch_size")

    def pieces(cooked: Cooked) -> list[Piece]:
        found: list[Piece] = []
        before = ""
        for first in range(0, len(cooked.times), moment):
            middle = (cooked.times[first] + cooked.times[first + moment - 1]) / 2
            found += [f"{before}<{middle:.1f} seconds><|vision_start|>", _each(cooked, side)]
            before = "<|vision_end|>"
        return [*found, before]

    each = video.number("max_video_tokens") * side**2 if video.flag(_CAPPED) else None
    frames = Frames(_whole(video), _sampling(video, "spread", 1), moment, bounds_all=True, most_of_each=each)
    return {"image": _image(files, image), "video": _video(files, video, frames, pieces)}


def _image(files: ProcessorFiles, settings: Settings) -> MediaProcessor:
    side, token = _side(settings), files.token("image_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        return [_each(cooked, side)]

    return MediaProcessor(_whole(settings), *settings.scaling(), token, token, pieces, _mark("image"))


def _video(
    files: ProcessorFiles, settings: Settings, frames: Frames, pieces: Callable[[Cooked], list[Piece]]
) -> MediaProcessor:
    token = files.token("video_token_id")
    return MediaProcessor(frames, *settings.scaling(), token, token, pieces, _mark("video"))


def _side(settings: Settings) -> int:
    """Pixels that an embedding has a side."""
    return settings.number("patch_size") * settings.number("merge_size")


def _each(cooked: Cooked, side: int) -> int:
    """Embeddings of a picture or of a moment."""
    _, height, width, _ = cooked.shape
    return (height // side) * (width // side)


def _with_bounds(settings: Settings, usual: tuple[int, int]) -> Settings:
    """Pixels, given by name or as edges of a size."""
    size = settings.values.get("size")
    edges = size if isinstance(size, dict) else {}
    least, most = edges.get("shortest_edge", usual[0]), edges.get("longest_edge", usual[1])
    return settings.over({"min_pixels": least, "max_pixels": most})


def _whole(settings: Settings) -> Whole:
    least, most = settings.number("min_pixels"), settings.number("max_pixels")
    return Whole(_side(settings), least, most, settings.filter)


def _sampling(settings: Settings, rule: Literal["steps", "spread"], multiple: int) -> Sampling:
    count = settings.number("num_frames") if settings.flag("num_frames") else None
    rate = settings.positive("fps") if settings.flag("fps") else _FRAMES_A_SECOND
    least, most = settings.number("min_frames"), settings.number("max_frames")
    return Sampling(rule, None if count else rate, count, least, most, multiple)


def _mark(kind: str) -> str:
    return f"<|vision_start|><|{kind}_pad|><|vision_end|>"
