"""What sentence-transformers' files beside a checkpoint say of how it embeds: modules.json, 1_Pooling/config.json
and sentence_bert_config.json. A checkpoint without them leaves everything open."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.core.pooling import POOLINGS, Pooling
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.json_object import parse_json_object, read_json_object

_MODULES = "modules.json"
_POOLING = "Pooling"
_KNOWN = ("Transformer", _POOLING, "Normalize")
_LIMITS = "sentence_bert_config.json"
_MODES: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_cls_token": "cls",
}
_NAMES: dict[object, Pooling] = {"lasttoken": "last", **{pooling: pooling for pooling in POOLINGS}}


@dataclass(frozen=True, slots=True)
class SentenceSettings:
    """None where the files do not say."""

    pooling: Pooling | None = None
    max_length: int | None = None
    """Tokens it was trained to embed, which may be fewer than it has positions for."""
    lower_case: bool = False
    """Whether texts are put in lower case before they are tokenized."""


def read_sentence_settings(path: Path) -> SentenceSettings:
    """The settings beside the model at `path`."""
    folder = path if path.is_dir() else path.parent
    limits_file = folder / _LIMITS
    limits = HFFields(read_json_object(limits_file) if limits_file.is_file() else {}, str(limits_file))
    return SentenceSettings(
        pooling=_pooling(folder),
        max_length=limits.size_or_none("max_seq_length"),
        lower_case=limits.flag("do_lower_case", False),
    )


def _pooling(folder: Path) -> Pooling | None:
    chosen: Pooling | None = None
    for module in _modules(folder / _MODULES):
        kind = str(module.get("type")).rpartition(".")[2]
        if kind not in _KNOWN:
            raise CheckpointError(
                f"{folder / _MODULES} has a module of type {kind!r}, without which its embeddings would be others; "
                f"quire has {', '.join(_KNOWN)}."
            )
        if kind == _POOLING:
            chosen = _chosen(folder / _inside(folder, str(module.get("path"))) / "config.json")
    return chosen


def _modules(path: Path) -> list[Mapping[str, Any]]:
    if not path.is_file():
        return []
    # the one file that holds a list; as the value of an object it is read with the checks of all others
    modules = parse_json_object(b'{"modules":' + path.read_bytes() + b"}", str(path))["modules"]
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise CheckpointError(f"{path} must hold a list of modules; download it again.")
    return modules


def _inside(folder: Path, name: str) -> str:
    if Path(name).name != name:
        raise CheckpointError(f"{folder / _MODULES} points to {name!r}, but its modules must lie in the same folder.")
    return name


def _chosen(path: Path) -> Pooling:
    config = read_json_object(path)
    named = config.get("pooling_mode")
    if named in _NAMES:
        return _NAMES[named]
    modes = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    if len(modes) == 1 and modes[0] in _MODES:
        return _MODES[modes[0]]
    raise CheckpointError(
        f"{path} asks for {named or ' and '.join(modes) or 'no pooling'}; quire has {', '.join(_MODES)}, one at a time."
    )
