"""Fields of a quantization_config, and the one line that refuses what quire does not run."""

from collections.abc import Callable
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.hf_fields import HFFields
from quire.spec.quantization import WeightScheme

SchemeOf = Callable[[str, bool], WeightScheme | None]
"""By the name of a Linear, and whether it is in a layer: how its weight is stored; None: plain."""

_SMALLEST_GROUP = 16
_WHOLE_ROW = -1


def refused(source: str, given: str, allowed: str) -> CheckpointError:
    return CheckpointError(
        f"{source}: quantization_config gives {given}, which quire does not run; it runs {allowed}. "
        "Take another quantization of the model."
    )


def one_of(fields: HFFields, name: str, allowed: tuple[Any, ...], otherwise: Any = None) -> Any:
    """The value of a field that must be one of these; `otherwise` where it is missing."""
    value = fields.values.get(name)
    value = otherwise if value is None else value
    if isinstance(value, bool) is not isinstance(allowed[0], bool) or value not in allowed:
        raise refused(fields.source, f"{name} {_shown(value)}", ", ".join(map(str, allowed)))
    return value


def group_size(fields: HFFields, otherwise: int | None = None) -> int | None:
    """Columns that share a scale; None: the whole row."""
    value = fields.values.get("group_size")
    value = otherwise if value is None else value
    if value == _WHOLE_ROW:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < _SMALLEST_GROUP or value % _SMALLEST_GROUP:
        allowed = f"{_WHOLE_ROW} for whole rows, and multiples of {_SMALLEST_GROUP} such as 32, 64 and 128"
        raise refused(fields.source, f"group_size {_shown(value)}", allowed)
    return value


def names(fields: HFFields, *of: str) -> tuple[str, ...]:
    """A list of names under the first of these fields that is there."""
    value: Any = next((fields.values[name] for name in of if fields.has(name)), [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise CheckpointError(f"{fields.source} gives {of[0]} as {_shown(value)}, but it must be a list of names.")
    return tuple(value)


def _shown(value: object) -> str:
    return repr(value)[:60]
