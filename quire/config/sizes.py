"""Sizes of memory as people write them: read `24GB` and `80GiB`, print bytes in the unit that reads best.

GB is 10^9 bytes, as on model cards; GiB is 2^30, as drivers count memory.
"""

import re

from quire.core.errors import ConfigError

_UNITS = {"b": 1}
_UNITS |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)}
_UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)}

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b)\s*", re.IGNORECASE)

GIB = 1024**3


def parse_size(text: str, name: str) -> int:
    """Bytes in `text`; `name` is the flag or field that an error should mention."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() == "ib":
        raise ConfigError(
            f"{name} is {text!r}, which is not a size; give a number with a unit, for example 24GB, 80GiB or 512MiB."
        )
    size = int(float(match[1]) * _UNITS[match[2].lower()])
    if size < 1:
        raise ConfigError(f"{name} is {text!r}, but it must be more than zero; give for example 24GB.")
    return size


def decimal_size(size: int) -> str:
    """`16.06 GB`, `30.08 MB`: powers of 1000, as model cards count weights."""
    for power, unit in ((9, "GB"), (6, "MB"), (3, "kB")):
        if abs(size) >= 10**power:
            return f"{size / 10**power:,.2f} {unit}"
    return f"{size} B"


def binary_size(size: int) -> str:
    """`128 KiB`, `2 MiB`, `79.1 GiB`: the largest power of 1024 that leaves at least one."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:,.4g} TiB"
