"""Which Linears a name in a quantization_config means."""

import re

from quire.core.errors import CheckpointError

LINEAR = "Linear"
_PATTERN = "re:"
_LONGEST = 500
"""Characters of a pattern."""


def is_named(module: str, names: tuple[str, ...]) -> bool:
    """Whether one of the names is the module's, or that of something it is in or ends with: `lm_head`, `layers.0`."""
    return any(f".{name.strip('.')}." in f".{module}." for name in names)


def targets(names: tuple[str, ...], source: str) -> re.Pattern[str]:
    """What matches the modules that targets of compressed-tensors mean: names, or patterns that names begin with."""
    patterns = [name.removeprefix(_PATTERN) for name in names if name.startswith(_PATTERN)]
    whole = [f"{re.escape(name)}$" for name in names if not name.startswith(_PATTERN)]
    for each in patterns:
        pattern(each, source)
    return re.compile("|".join(f"(?:{each})" for each in (*patterns, *whole)) or r"(?!)")


def pattern(text: str, source: str) -> re.Pattern[str]:
    try:
        if len(text) > _LONGEST:
            raise ValueError(f"it has more than {_LONGEST} characters")
        return re.compile(text)
    except (re.error, ValueError) as error:
        raise CheckpointError(
            f"{source}: quantization_config names modules by {text[:60]!r}, which is no pattern: {error}."
        ) from None
