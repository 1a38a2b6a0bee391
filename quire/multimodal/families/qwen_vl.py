"""Qwen2-VL and Qwen2.5-VL: pictures of any size, and videos of which two frames are one moment."""

from quire.multimodal.processor import MediaProcessor, Piece, ProcessorFiles, Processors
from quire.multimodal.recipes import Cooked, Frames, Sampling, Whole
from quire.multimodal.settings import BICUBIC, CLIP_MEAN, CLIP_STD, SCALED, Settings

_IMAGE = {
    **SCALED,
    "resample": BICUBIC,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
}
_VIDEO = {**_IMAGE, "min_frames": 4, "max_frames": 768}
_IMAGE_PIXELS = (56 * 56, 28 * 28 * 1280)
_VIDEO_PIXELS = (128 * 28 * 28, 28 * 28 * 768)
_FRAMES_A_SECOND = 2.0
"""Of Qwen's own code around its processor, which by itself leaves the choice of frames to who calls it."""


def qwen2_vl(files: ProcessorFiles) -> Processors:
    image, video = (
        _with_bounds(files.image.over(_IMAGE), _IMAGE_PIXELS),
        _with_bounds(files.video.over(_VIDEO), _VIDEO_PIXELS),
    )
    side, moment = image.number("patch_size") * image.number("merge_size"), video.number("temporal_patch_size")
    token, video_token = files.token("image_token_id"), files.token("video_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        _, height, width, _ = cooked.shape
        return [(height // side) * (width // side)]

    def moments(cooked: Cooked) -> list[Piece]:
        frames, height, width, _ = cooked.shape
        return [frames // moment * (height // side) * (width // side)]

    frames = Frames(_whole(video, side), _sampling(video, moment), moment)
    return {
        "image": MediaProcessor(_whole(image, side), *image.scaling(), token, token, pieces, _mark("image")),
        "video": MediaProcessor(frames, *video.scaling(), video_token, video_token, moments, _mark("video")),
    }


def _with_bounds(settings: Settings, usual: tuple[int, int]) -> Settings:
    """Pixels, given by name or as edges of a size."""
    size = settings.values.get("size")
    edges = size if isinstance(size, dict) else {}
    least, most = edges.get("shortest_edge", usual[0]), edges.get("longest_edge", usual[1])
    return settings.over({"min_pixels": least, "max_pixels": most})


def _whole(settings: Settings, side: int) -> Whole:
    return Whole(side, settings.number("min_pixels"), settings.number("max_pixels"), settings.filter)


def _sampling(settings: Settings, moment: int) -> Sampling:
    count = settings.number("num_frames") if settings.flag("num_frames") else None
    rate = settings.positive("fps") if settings.flag("fps") else _FRAMES_A_SECOND
    least, most = settings.number("min_frames"), settings.number("max_frames")
    return Sampling("steps", None if count else rate, count, least, most, moment)


def _mark(kind: str) -> str:
    return f"<|vision_start|><|{kind}_pad|><|vision_end|>"
