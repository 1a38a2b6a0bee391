"""Card: what the choices of kernels ask of a GPU.

Choices were measured on an H200 and are looked up by its name; for other cards they follow from these numbers.
"""

from dataclasses import dataclass
from functools import cache

import torch

H200 = "NVIDIA H200"
MEASURED_MEMORY = 227 << 10
"""Bytes of shared memory for which tiles of attention were chosen: an H200's."""
MEASURED_MULTIPROCESSORS = 132


@dataclass(frozen=True, slots=True, eq=False)  # there is one of each, so that it is found fast in caches
class Card:
    name: str
    multiprocessors: int
    shared_memory: int
    """Bytes that one program can have."""
    warp_size: int = 32
    bandwidth: float = 4.8e12
    """Bytes a second, by clock and bus."""


INTERPRETED = Card("interpreter", MEASURED_MULTIPROCESSORS, MEASURED_MEMORY)


@cache
def card_of(device: torch.device) -> Card:
    """The GPU a tensor is on; where kernels are interpreted, one that there is not."""
    if device.type != "cuda":
        return INTERPRETED
    from triton.runtime import driver

    index = torch.cuda.current_device() if device.index is None else device.index
    facts = driver.active.utils.get_device_properties(index)
    return Card(
        torch.cuda.get_device_name(index),
        facts["multiprocessor_count"],
        facts["max_shared_mem"],
        facts["warpSize"],
        # kHz and bits, two of them a clock; some drivers leave the clock out
        2e3 * facts["mem_clock_rate"] * facts["mem_bus_width"] / 8 or INTERPRETED.bandwidth,
    )


def fitting_positions(card: Card, positions: int, position_bytes: int, num_stages: int, besides: int = 0) -> int:
    """How many positions of the cache a tile of attention holds: so many, or where memory is short, fewer.

    `position_bytes` are those of a key and a value, `besides` what else stands in shared memory.
    """
    if card.shared_memory >= MEASURED_MEMORY:
        return positions
    tiles = 1 + (num_stages > 1) + (num_stages > 4)  # the one that is computed, and those in flight
    while positions > 16 and tiles * positions * position_bytes + besides >= card.shared_memory:
        positions //= 2
    return positions


def least_reads_saved(device: torch.device) -> int:
    """Bytes that a layer of a step must be spared for attention to shared prefixes in tiles to gain more than it costs.

    It costs a time in which memory gives so many: on an H200 they are 128 MiB, as measured, in 28 µs.
    """
    card = card_of(device)
    return 128 << 20 if card.name == H200 else int(28e-6 * card.bandwidth)
