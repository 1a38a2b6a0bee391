"""What `quire quantize` is asked for: names and bounds, known before anything is loaded. No torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean

PLAIN = ("bfloat16", "float16")
"""Schemes that expand a model and quantize nothing."""
FOLDERS = ("fp8", "int8", "int4", *PLAIN)
"""Schemes that become a folder of safetensors files."""
GGUF = ("q4_0", "q8_0", "q4_k_m", "q5_k_m", "q6_k")
"""Schemes that become a GGUF file."""
SCHEMES = (*FOLDERS, *GGUF)
METHODS = ("rtn", "gptq", "awq")
CALIBRATED = ("gptq", "awq")
_METHOD_SCHEMES = {"rtn": SCHEMES, "gptq": ("fp8", "int8", "int4"), "awq": ("int8", "int4")}
WHOLE_ROWS = -1
"""The group size that gives every row one scale."""
SMALLEST_GROUP = 16
USUAL_GROUPS = (128, 64, 32)
"""The first that divides every matrix is taken where none is given."""


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """Of one run; what contradicts itself is refused."""

    scheme: str
    method: str
    group_size: int | None = None
    """Columns that share a scale of int4; -1: a whole row; None: the first of `USUAL_GROUPS` that fits."""
    symmetric: bool = True
    act_order: bool = True
    ignore: tuple[str, ...] = ("lm_head",)
    """Names of modules that stay plain, or patterns after `re:`."""
    calibration: Path | None = None
    """None: the text that quire ships."""

    @property
    def is_gguf(self) -> bool:
        return self.scheme in GGUF

    @property
    def is_calibrated(self) -> bool:
        return self.method in CALIBRATED

    @property
    def rescales(self) -> bool:
        """Whether columns are multiplied before they are rounded; int8 always gains, because it rounds inputs too."""
        return self.method == "awq" or (self.method == "gptq" and self.scheme == "int8")


def read_options(
    scheme: str,
    *,
    method: str | None = None,
    group_size: int | None = None,
    symmetric: bool = True,
    act_order: bool = True,
    ignore: Iterable[str] = ("lm_head",),
    calibration: Path | None = None,
) -> QuantizeOptions:
    """Options that go together; a method of None is the best that the scheme has."""
    name = scheme.lower().replace("-", "_")
    _one_of("--scheme", name, SCHEMES)
    chosen = method or ("gptq" if name in _METHOD_SCHEMES["gptq"] else "rtn")
    _one_of("--method", chosen, METHODS)
    if name not in _METHOD_SCHEMES[chosen]:
        allowed = ", ".join(_METHOD_SCHEMES[chosen])
        raise ConfigError(f"--method is {chosen}, which is for --scheme {allowed}; leave it out for {name}.")
    if calibration is not None and chosen not in CALIBRATED:
        raise ConfigError(f"--calibration is given, but {name} by {chosen} reads no text; leave it out.")
    if name != "int4" and (group_size is not None or not symmetric):
        raise ConfigError(f"--group-size and --asymmetric are for --scheme int4; leave them out for {name}.")
    if group_size is not None and group_size != WHOLE_ROWS and (group_size < SMALLEST_GROUP or group_size % 16):
        raise ConfigError(
            f"--group-size is {group_size}; give a multiple of {SMALLEST_GROUP} such as 32, 64 or 128, or "
            f"{WHOLE_ROWS} for whole rows."
        )
    return QuantizeOptions(name, chosen, group_size, symmetric, act_order, tuple(ignore), calibration)


def _one_of(option: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise ConfigError(f"{option} is {given!r}; quire has {', '.join(allowed)}.{did_you_mean(given, allowed)}")
