"""Typed reading of a config.json, whose fields go by several names and may be missing, null or nonsense."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.json_object import is_count

_MOST = 10**9
"""No size in a config comes near this; a larger one is damage, and arithmetic on it would be nonsense."""


@dataclass(frozen=True, slots=True)
class HFFields:
    """A config.json over its family's defaults; fields that are null count as missing."""

    values: Mapping[str, Any]
    source: str

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def size(self, *names: str, most: int = _MOST) -> int:
        """A whole number above 0 under the first of `names` that is there."""
        value = self.size_or_none(*names, most=most)
        if value is None:
            raise CheckpointError(
                f"{self.source} does not give {' or '.join(names)}; quire needs it to know the model's shape."
            )
        return value

    def size_or_none(self, *names: str, least: int = 1, most: int = _MOST) -> int | None:
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if not is_count(value) or not least <= value <= most:
                raise CheckpointError(
                    f"{self.source} gives {name} as {_shown(value)}, but it must be a whole number "
                    f"from {least} to {most:,}."
                )
            return int(value)
        return None

    def number_or_none(self, name: str) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST:
            raise CheckpointError(f"{self.source} gives {name} as {_shown(value)}, but it must be a number above 0.")
        return float(value)

    def number(self, name: str, otherwise: float) -> float:
        value = self.number_or_none(name)
        return otherwise if value is None else value

    def text(self, name: str, otherwise: str) -> str:
        value = self.values.get(name)
        return value if isinstance(value, str) else otherwise

    def flag(self, name: str, otherwise: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return otherwise
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.source} gives {name} as {_shown(value)}, but it must be true or false.")
        return value

    def nested(self, name: str) -> "HFFields":
        """The object under `name`; an empty one when there is none."""
        value = self.values.get(name)
        return HFFields(value if isinstance(value, dict) else {}, f"{self.source}, {name},")


def _shown(value: object) -> str:
    return repr(value)[:40]
