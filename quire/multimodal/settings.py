"""What a checkpoint's files say of its processor: preprocessor_config.json, or the newer processor_config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from quire.core.errors import CheckpointError
from quire.multimodal.recipes import Filter

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)
LANCZOS, BILINEAR, BICUBIC = 1, 2, 3
SCALED = {"do_resize": True, "do_rescale": True, "do_normalize": True}
_FILES = ("preprocessor_config.json", "processor_config.json")
_VIDEO_FILE = "video_preprocessor_config.json"
_MOST_SIDE = 1 << 16


@dataclass(frozen=True, slots=True)
class Settings:
    """One object of a file, over the defaults of its class."""

    values: Mapping[str, Any]
    source: str

    def over(self, defaults: Mapping[str, Any]) -> "Settings":
        given = {name: value for name, value in self.values.items() if value is not None}
        return Settings({**defaults, **given}, self.source)

    def number(self, name: str) -> int:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1 << 40:
            raise CheckpointError(f"{self.source} gives {name} as {str(value)[:40]!r}, but it must be a whole number.")
        return value

    def positive(self, name: str) -> float:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise CheckpointError(f"{self.source} gives {name} as {str(value)[:40]!r}, but it must be above 0.")
        return float(value)

    def flag(self, name: str) -> bool:
        return bool(self.values.get(name))

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    @property
    def filter(self) -> Filter:
        value = self.values.get("resample", BILINEAR)
        if not isinstance(value, int) or not 0 <= value <= 5:
            raise CheckpointError(
                f"{self.source} gives resample as {value!r}, but it must be 0 to 5, as Pillow counts."
            )
        return cast(Filter, int(value))

    def sides(self, name: str) -> tuple[int, int]:
        """Height and width, given as one number, as both, or as the shortest edge."""
        value = self.values.get(name)
        if isinstance(value, dict):
            shortest = value.get("shortest_edge", value.get("longest_edge"))
            value = [value.get("height", shortest), value.get("width", shortest)]
        pair: list[Any] = value if isinstance(value, list) and len(value) == 2 else [value, value]
        if not all(isinstance(side, int) and 0 < side <= _MOST_SIDE for side in pair):
            raise CheckpointError(f"{self.source} gives {name} as {str(value)[:80]}, which is no size of a picture.")
        return int(pair[0]), int(pair[1])

    def scaling(self) -> tuple[float, tuple[float, float, float], tuple[float, float, float]]:
        """What numbers are multiplied by, and their mean and deviation by channel."""
        rescale = float(self.values.get("rescale_factor") or 1 / 255) if self.flag("do_rescale") else 1.0
        if not self.flag("do_normalize"):
            return rescale, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
        return rescale, self._channels("image_mean"), self._channels("image_std")

    def _channels(self, name: str) -> tuple[float, float, float]:
        value = self.values.get(name)
        given = [value] * 3 if isinstance(value, int | float) else value
        if not isinstance(given, list | tuple) or len(given) != 3:
            raise CheckpointError(f"{self.source} gives {name} as {str(value)[:80]}, which is not a number a channel.")
        return float(given[0]), float(given[1]), float(given[2])


def read_json(path: Path) -> dict[str, Any]:
    """An object; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is no JSON object; download it again.")
    return found


def image_settings(folder: Path) -> Settings:
    """Of the image processor; without files, its class's defaults hold."""
    for name in _FILES:
        found = read_json(folder / name)
        inner = found.get("image_processor")
        if isinstance(inner, dict):
            return Settings(inner, str(folder / name))
        if found and name == _FILES[0]:
            return Settings(found, str(folder / name))
    return Settings({}, str(folder))


def video_settings(folder: Path) -> Settings:
    """Of the video processor; checkpoints without one of its own read the image processor's numbers."""
    own = read_json(folder / _VIDEO_FILE)
    if own:
        return Settings(own, str(folder / _VIDEO_FILE))
    for name in _FILES:
        inner = read_json(folder / name).get("video_processor")
        if isinstance(inner, dict):
            return Settings(inner, str(folder / name))
    return image_settings(folder)
