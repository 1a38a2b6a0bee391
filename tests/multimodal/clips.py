"""Short videos, and what a plain reading of them gives."""

import io
from typing import Any

import av
import numpy as np
from PIL import Image

from tests.multimodal.tiny_vision import picture


def make_clip(
    count: int = 20,
    rate: int = 8,
    size: tuple[int, int] = (96, 64),
    form: str = "mp4",
    codec: str = "mpeg4",
    title: str = "",
    **more: Any,
) -> bytes:
    """Pictures that wander, in a file of so many frames a second; `size` is height and width."""
    height, width = size
    wide = np.asarray(picture(height, width + 4 * count, 3))
    stored = io.BytesIO()
    with av.open(stored, "w", format=form) as container:
        if title:
            container.metadata["title"] = title
        stream = container.add_stream(codec, rate=rate, **more)
        stream.width, stream.height = width, height
        stream.pix_fmt = {"gif": "rgb8", "ffv1": "bgr0"}.get(codec, "yuv420p")
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(wide[:, 4 * number : 4 * number + width]), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return stored.getvalue()


def frames_of(data: bytes) -> list[Image.Image]:
    """All of them."""
    with av.open(io.BytesIO(data)) as container:
        return [Image.fromarray(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
