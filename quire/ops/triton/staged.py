"""Launching kernels with as many stages as a device has shared memory for.

A stage is a turn of a loop whose loads are under way, in shared memory. Choices estimate what fits a card (`card.py`);
where a compiler takes more, a kernel has fewer stages and is slower, but runs.
"""

from collections.abc import Hashable, Mapping
from typing import Any

from triton.runtime.errors import OutOfResources

_possible: dict[Hashable, int] = {}
"""How many stages a kernel can have where it cannot have those it was launched with."""


def launch_staged(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], settings: Mapping[str, Any], stages: str
) -> None:
    """`kernel[grid](*arguments, **settings)`; `stages` is what it calls their number among its settings."""
    wanted = dict(settings)
    if _possible:  # building a key takes longer than finding nothing
        wanted[stages] = _possible.get(_key(kernel, settings), wanted[stages])
    while True:
        try:
            kernel[grid](*arguments, **wanted)
            return
        except OutOfResources:  # before anything was launched
            if wanted[stages] == 1:
                raise
            wanted[stages] -= 1
            _possible[_key(kernel, settings)] = wanted[stages]


def _key(kernel: Any, settings: Mapping[str, Any]) -> Hashable:
    return id(kernel), tuple(settings.items())
