"""Decoding videos with PyAV: which frames are read, and what becomes of them. Runs in the process that strangers' files
are for."""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from quire.multimodal.open_container import open_container
from quire.multimodal.pictures import BadMedia, Pictures, check_shape, prepare, whole_size
from quire.multimodal.recipes import Cooked, Fixed, Frames, Job, Limits, Sampling, Whole

FORMATS = ("MP4", "MOV", "WebM", "Matroska", "AVI", "GIF")
_BRANDS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
_ARRAY = b"\x93NUMPY"
_USUAL_RATE = 24.0
"""Frames a second of a video that does not say, as in transformers."""
_MOST_FRAMES = 200_000
"""Of a file, read or not: all before the last that is read must be decoded."""


def cook_video(job: Job) -> Cooked:
    """Raises BadMedia."""
    assert isinstance(job.recipe, Frames), "other recipes are for images"
    if job.data[: len(_ARRAY)] == _ARRAY:
        return _cook_array(job.data, job.recipe, job.limits)
    try:
        return _cook_file(job.data, job.recipe, job.limits)
    except (OSError, ValueError, EOFError) as error:  # PyAV's own errors are among them
        reason = str(getattr(error, "strerror", None) or error)[:200]
        raise BadMedia(f"it cannot be decoded: {reason or type(error).__name__}") from None


def chosen_frames(total: int, rate: float, sampling: Sampling, most: int) -> list[int]:
    """Which of `total` frames, `rate` of them a second, are read, `most` at most."""
    most = min(sampling.most, most, total)
    most = max(most // sampling.multiple * sampling.multiple, 1)
    if sampling.count is not None:
        wanted = float(round(sampling.count / sampling.multiple) * sampling.multiple)
    else:
        assert sampling.per_second is not None, "a rule says how many, or how many a second"
        wanted = max(total / rate * sampling.per_second, sampling.least)
    count = max(int(min(wanted, most)) // sampling.multiple * sampling.multiple, 1)
    if sampling.rule == "parts":
        return [number * total // count for number in range(count)]
    if sampling.rule == "spread":
        return [int(place) for place in np.linspace(0, total - 1, count).round()]
    return [min(int(place), total - 1) for place in np.arange(count) * (total / count)]


# --- files -----------------------------------------------------------------------------------------------------------


def _cook_file(data: bytes, recipe: Frames, limits: Limits) -> Cooked:
    form = _format(data)
    total, rate = _counted(data, form, limits)
    places = chosen_frames(total, rate, recipe.sampling, limits.frames)
    images, decoded = _decoded(data, form, places, limits)
    if len(images) < len(places):  # some packets hold no frame that is shown
        if not decoded:
            raise BadMedia("it holds no frame that can be decoded")
        total = decoded
        places = chosen_frames(total, rate, recipe.sampling, limits.frames)
        images, _ = _decoded(data, form, places, limits)
    return _cooked(images, places, len(places) / total * rate, rate, recipe, limits)


def _format(data: bytes) -> str:
    """By its first bytes. A library that guesses may take a list of addresses for a video, and ask them."""
    if data[4:8] in _BRANDS:
        return "mov"
    if data[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    if data[:4] == b"RIFF" and data[8:12] == b"AVI ":
        return "avi"
    if data[:4] == b"GIF8":
        return "gif"
    raise BadMedia(f"it is no video that quire reads; send one of {', '.join(FORMATS)}")


@contextmanager
def _opened(data: bytes, form: str) -> Iterator[tuple[Any, Any]]:
    """A container and its first stream of pictures."""
    try:
        opened = open_container(data, form)
    except ImportError:
        raise BadMedia("the server has no library for videos (`pip install quire[media]` brings it)") from None
    with opened as container:
        if not container.streams.video:
            raise BadMedia("it holds no pictures")
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        yield container, stream


def _counted(data: bytes, form: str, limits: Limits) -> tuple[int, float]:
    """Frames of a file, without decoding them, and how many a second there are."""
    with _opened(data, form) as (container, stream):
        _check_size(stream.codec_context.width, stream.codec_context.height, limits)
        rate = float(stream.average_rate or stream.guessed_rate or _USUAL_RATE)
        total = packets = 0
        for packet in container.demux(stream):
            if packet.size:
                packets += 1
                total += not packet.is_discard
            if packets > _MOST_FRAMES or total / rate > limits.seconds:
                raise BadMedia(
                    f"it lasts longer than {limits.seconds:g} seconds or has more than {_MOST_FRAMES:,} frames, the "
                    "most that is taken; cut it"
                )
        if packets < stream.frames:
            raise BadMedia(f"it is cut off: {packets:,} of {stream.frames:,} frames are there")
    if not total:
        raise BadMedia("it holds no frames")
    return total, rate


def _decoded(data: bytes, form: str, places: Sequence[int], limits: Limits) -> tuple[list[Image.Image], int]:
    """The frames at these places, and how many were decoded to get there."""
    found: list[Image.Image] = []
    wanted, count = set(places), 0
    with _opened(data, form) as (container, stream):
        for frame in container.decode(stream):
            if count in wanted:
                _check_size(frame.width, frame.height, limits)
                found.append(Image.fromarray(frame.to_ndarray(format="rgb24")))
            count += 1
            if count > places[-1]:
                break
    return found, count


def _check_size(width: int, height: int, limits: Limits) -> None:
    if width * height > limits.pixels:
        raise BadMedia(f"its frames have {width:,} × {height:,} pixels; {limits.pixels:,} are the most")


# --- arrays ----------------------------------------------------------------------------------------------------------


def _cook_array(data: bytes, recipe: Frames, limits: Limits) -> Cooked:
    """Frames that a program has chosen already: all are read. Behind the array may stand how many a second they are."""
    stored = io.BytesIO(data)
    try:
        frames = np.load(stored, allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise BadMedia("it is an array that cannot be read") from None
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8 or not frames.size:
        raise BadMedia(
            f"it is an array of {frames.shape} in {frames.dtype}; frames are uint8 [frames, height, width, 3]"
        )
    if len(frames) > limits.frames:
        raise BadMedia(f"it has {len(frames):,} frames; {limits.frames:,} are the most (--media-max-frames)")
    given = stored.read(64)
    rate = msgspec.json.decode(given, type=float) if given else _USUAL_RATE
    _check_size(frames.shape[2], frames.shape[1], limits)
    images = [Image.fromarray(frame) for frame in frames]
    return _cooked(images, range(len(frames)), rate, rate, recipe, limits)


# --- pictures --------------------------------------------------------------------------------------------------------


def _cooked(
    images: Sequence[Image.Image], places: Sequence[int], read_rate: float, rate: float, recipe: Frames, limits: Limits
) -> Cooked:
    """`read_rate` of these frames are a second, `rate` were in the file."""
    sizes = {image.size for image in images}
    if len(sizes) > 1:
        raise BadMedia("its frames change their size, and a model reads them in one")
    [(width, height)] = sizes
    picture = _of_one(recipe, len(images), height, width, limits)
    frames = [prepare(image, picture)[0][0] for image in images]
    missing = -len(frames) % recipe.moment
    frames += frames[-1:] * missing
    times = [place / rate for place in (*places, *[places[-1]] * missing)]
    pictures: Pictures = np.stack(frames)
    shape: Any = pictures.shape
    return Cooked(pictures.tobytes(), shape, (height, width), seconds=recipe.moment / read_rate, times=tuple(times))


def _of_one(recipe: Frames, count: int, height: int, width: int, limits: Limits) -> Fixed:
    """What becomes of each frame: all together are bounded as one image is, so that many are read smaller."""
    picture = recipe.picture
    if isinstance(picture, Fixed):
        return picture
    check_shape(height, width)
    picture = _capped(recipe, picture, count)
    if recipe.bounds_all:
        size = _size_of_all(picture, recipe.moment, count, height, width)
    else:
        size = whole_size(height, width, picture.factor, picture.min_pixels, picture.max_pixels)
    if count * math.prod(size) > limits.pixels:
        most = max(limits.pixels // count, picture.factor**2)
        size = whole_size(height, width, picture.factor, min(picture.min_pixels, most), most)
    return Fixed(size, None, picture.filter)


def _capped(recipe: Frames, picture: Whole, count: int) -> Whole:
    """Where a checkpoint bounds what many frames, or few, may take."""
    most, least = picture.max_pixels, int(picture.min_pixels * 1.05)
    if recipe.most_of_all is not None:
        most = max(min(most, recipe.most_of_all // count), least)
    if recipe.most_of_each is not None:
        most = max(min(recipe.most_of_each, most // count), least) * count
    return msgspec.structs.replace(picture, max_pixels=most)


def _size_of_all(picture: Whole, moment: int, count: int, height: int, width: int) -> tuple[int, int]:
    """As `whole_size`, the bounds being those of `count` frames, or of the moments that they come nearest to."""
    factor = picture.factor
    if min(height, width) < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    size = (round(height / factor) * factor, round(width / factor) * factor)
    pixels = round(count / moment) * moment * math.prod(size)
    if pixels > picture.max_pixels:
        shrink = math.sqrt(count * height * width / picture.max_pixels)
        return max(factor, math.floor(height / shrink / factor) * factor), max(
            factor, math.floor(width / shrink / factor) * factor
        )
    if pixels < picture.min_pixels:
        grow = math.sqrt(picture.min_pixels / (count * height * width))
        return math.ceil(height * grow / factor) * factor, math.ceil(width * grow / factor) * factor
    return size
