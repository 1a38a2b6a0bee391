"""The one table of which implementation of an op runs on which kind of device.

The reference is the definition and runs everywhere; a faster one is an entry beside it. Implementations are
imported when they are first needed, so an absent backend costs nothing.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

_REFERENCE = "quire.ops.reference"

TABLE: dict[str, dict[str, str]] = {
    name: {"reference": f"{_REFERENCE}.{name}:{name}"}
    for name in (
        "rms_norm",
        "rotary",
        "gated_activation",
        "write_kv",
        "paged_attention",
        "packed_attention",
    )
}
"""By op, then by device type (`cuda`, `cpu`) or `reference`."""


@cache
def implementation(op: str, device_type: str) -> Callable[..., Any]:
    """The implementation of `op` for a device type: its own, else the reference."""
    places = TABLE[op]
    module, _, name = places.get(device_type, places["reference"]).partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
