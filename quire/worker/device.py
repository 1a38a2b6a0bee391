"""What the device of this machine is and can do."""

import os
from dataclasses import replace

import torch

from quire.config.devices import DEVICES
from quire.config.facts import DeviceFacts
from quire.ops.cpu import native


def this_device() -> torch.device:
    """The first GPU where there is one, else the CPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def used_memory(device: torch.device) -> tuple[int, int]:
    """Bytes in use on a GPU, by whomever, and bytes it has; zeros for the CPU."""
    if device.type != "cuda":
        return 0, 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free, total


def device_facts(device: torch.device) -> DeviceFacts:
    """Facts of a real device; speeds are those of the preset that resembles it, as they only feed estimates."""
    host_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        like = _resembling(properties.name)
        capable = ("float32", "float16", "bfloat16") if properties.major >= 8 else ("float32", "float16")
        facts = _facts(like, properties.name, properties.total_memory, host_memory, capable)
        return replace(facts, free_bytes=torch.cuda.mem_get_info(device)[0])
    facts = _facts(DEVICES["cpu"], "cpu", host_memory, host_memory, DEVICES["cpu"].dtypes)
    core = native.load()
    return replace(facts, has_cpu_core=core is not None, has_tiles=core is not None and native.TILES in core.variants())


def _resembling(name: str) -> DeviceFacts:
    lowered = name.lower()
    return next((DEVICES[known] for known in ("h200", "h100", "l4", "a10g") if known in lowered), DEVICES["a100-80gb"])


def _facts(like: DeviceFacts, name: str, memory: int, host_memory: int, dtypes: tuple[str, ...]) -> DeviceFacts:
    return DeviceFacts(
        name=name,
        kind=like.kind,
        memory_bytes=memory,
        bandwidth=like.bandwidth,
        flops=like.flops,
        host_bandwidth=like.host_bandwidth,
        host_memory_bytes=host_memory,
        step_overhead=like.step_overhead,
        dtypes=dtypes,
    )
