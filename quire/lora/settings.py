"""AdapterSettings: what an adapter_config.json of peft says, and what of it quire refuses. Torch-free."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.json_object import is_count, read_json_object

CONFIG = "adapter_config.json"
MOST_RANK = 256

_REFUSED: dict[str, str] = {
    "modules_to_save": "it brings whole modules of its own ({}), and quire adds to the model's; train it without",
    "trainable_token_indices": "it brings new vectors of tokens; train it without",
    "layer_replication": "it repeats layers, which makes another model",
    "alora_invocation_tokens": "it is an aLoRA, which begins within a prompt",
    "use_qalora": "it is a QALoRA, whose A reads averages of inputs",
    "lora_bias": "its B has a bias; train it without",
    "arrow_config": "it routes between several adapters",
    "megatron_config": "its layers are Megatron's",
}
"""By field: why an adapter that sets it cannot be added."""


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """How the matrices of an adapter are meant."""

    rank: int
    alpha: float
    rank_pattern: Mapping[str, int]
    """By regular expression of modules' names, as peft matches them."""
    alpha_pattern: Mapping[str, float]
    is_rslora: bool
    is_dora: bool

    def rank_of(self, module: str) -> int:
        return int(_matching(self.rank_pattern, module, self.rank))

    def scale_of(self, module: str, rank: int) -> float:
        """What B A is multiplied by."""
        alpha = _matching(self.alpha_pattern, module, self.alpha)
        return alpha / (math.sqrt(rank) if self.is_rslora else rank)


def read_settings(folder: Path) -> AdapterSettings:
    """Raises CheckpointError for what is no LoRA adapter, or one that quire cannot add."""
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{folder} has no {CONFIG}: it is no adapter in peft's format; give the folder that peft saved."
        )
    fields = read_json_object(path)
    kind = fields.get("peft_type")
    if kind != "LORA":
        raise CheckpointError(f"{path}: peft_type is {str(kind)[:40]!r}, and quire adds LORA adapters only.")
    for name, why in _REFUSED.items():
        if fields.get(name):
            raise CheckpointError(f"{path}: {name} is set: {why.format(str(fields[name])[:120])}.")
    if fields.get("bias", "none") != "none":
        raise CheckpointError(
            f"{path}: bias is {str(fields['bias'])[:20]!r}: it trains biases of the model itself; only "
            "none can be added."
        )
    return AdapterSettings(
        rank=_rank(fields.get("r", 8), "r", path),
        alpha=_number(fields.get("lora_alpha", 8), "lora_alpha", path),
        rank_pattern={
            name: _rank(value, "rank_pattern", path) for name, value in _pattern(fields, "rank_pattern", path)
        },
        alpha_pattern={
            name: _number(value, "alpha_pattern", path) for name, value in _pattern(fields, "alpha_pattern", path)
        },
        is_rslora=_switch(fields, "use_rslora", path),
        is_dora=_switch(fields, "use_dora", path),
    )


def _matching(pattern: Mapping[str, float], module: str, otherwise: float) -> float:
    """The value of the first expression that a module's name ends with, as peft looks for it."""
    for expression, value in pattern.items():
        if expression == module or re.fullmatch(rf"(.*\.)?({expression})", module):
            return value
    return otherwise


def _rank(value: Any, name: str, path: Path) -> int:
    if not is_count(value) or not 1 <= value <= 2**20:
        raise CheckpointError(f"{path}: {name} is {str(value)[:40]!r}, but a rank is a whole number from 1 on.")
    return int(value)


def _number(value: Any, name: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise CheckpointError(f"{path}: {name} is {str(value)[:40]!r}, but it must be a number.")
    return float(value)


_MOST_PATTERNS = 4096
_MOST_EXPRESSION = 512
"""Characters: names of modules are shorter, and an expression that takes long to match must not come from a file."""
_EXPRESSION = re.compile(r"[\w.\-^$|*\\]+")
_MOST_STARS = 3


def _pattern(fields: Mapping[str, Any], name: str, path: Path) -> list[tuple[str, Any]]:
    found = fields.get(name) or {}
    if not isinstance(found, dict) or len(found) > _MOST_PATTERNS:
        raise CheckpointError(f"{path}: {name} must map at most {_MOST_PATTERNS} modules' names to numbers.")
    for expression in found:
        is_plain = bool(_EXPRESSION.fullmatch(expression)) and expression.count("*") <= _MOST_STARS
        if not is_plain or len(expression) > _MOST_EXPRESSION or not _is_expression(expression):
            raise CheckpointError(
                f"{path}: {name} has the key {expression[:80]!r}; quire matches names of modules and simple patterns "
                f"of them, with {_MOST_STARS} stars at most and no groups."
            )
    return list(found.items())


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _switch(fields: Mapping[str, Any], name: str, path: Path) -> bool:
    value = fields.get(name, False)
    if value is not None and not isinstance(value, bool):
        raise CheckpointError(f"{path}: {name} is {str(value)[:40]!r}, but it must be true or false.")
    return bool(value)
