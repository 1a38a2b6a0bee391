"""What the device of this machine is and can do. torch is asked only where there may be a GPU."""

import ctypes
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from quire.config.devices import DEVICES, dtypes_of
from quire.config.facts import DeviceFacts
from quire.ops.cpu import native
from quire.worker.device_plugin import find_device_plugin, plugin_facts

if TYPE_CHECKING:
    import torch

_DRIVERS = ("libcuda.so.1", "libcuda.dylib", "nvcuda.dll")
_AMD = Path("/dev/kfd")


def may_have_gpu() -> bool:
    """Whether torch could find a GPU: a driver is there. It takes no time, where importing torch takes seconds."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        return False
    return _AMD.exists() or any(_can_load(driver) for driver in _DRIVERS)


@cache
def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def this_device(plugin: str | None = None) -> "torch.device":
    """The first of a plugin's, or the first GPU where there is one, else the CPU."""
    return rank_device(0, plugin)


def rank_device(rank: int, plugin: str | None = None) -> "torch.device":
    """Each rank's own GPU, in the order in which they are visible; ranks on CPUs share theirs."""
    if plugin is not None:
        return find_device_plugin(plugin).device(rank)
    import torch

    return torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")


def num_devices() -> int | None:
    """Of GPUs; None where there are none and any number of ranks can share the CPU."""
    if not may_have_gpu():
        return None
    import torch

    return torch.cuda.device_count() or None


def num_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def used_memory(device: "torch.device") -> tuple[int, int]:
    """Bytes in use on a GPU, by whomever, and bytes it has; zeros for the CPU."""
    if device.type != "cuda":
        return 0, 0
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return total - free, total


def device_facts(device: "torch.device") -> DeviceFacts:
    """Facts of a real device; speeds are those of the preset that resembles it, as they only feed estimates."""
    if device.type != "cuda":
        return cpu_facts()
    import torch

    properties = torch.cuda.get_device_properties(device)
    like = _resembling(properties.name)
    # AMD's numbers of generations are others, and its fp8 is another format
    dtypes = dtypes_of((8, 0) if torch.version.hip else (properties.major, properties.minor))
    facts = _facts(like, properties.name, properties.total_memory, _host_memory(), dtypes)
    return replace(facts, free_bytes=torch.cuda.mem_get_info(device)[0])


def local_facts(plugin: str | None = None) -> DeviceFacts:
    """Those of `this_device`."""
    if plugin is not None:
        return plugin_facts(plugin)
    return device_facts(this_device()) if may_have_gpu() else cpu_facts()


def local_memory(plugin: str | None = None) -> tuple[int, int]:
    """Bytes in use on `this_device`, and bytes it has; zeros for the CPU."""
    if plugin is not None:
        return find_device_plugin(plugin).used_memory(0)
    return used_memory(this_device()) if may_have_gpu() else (0, 0)


def cpu_facts() -> DeviceFacts:
    """Facts of this machine's CPU."""
    memory = _host_memory()
    facts = _facts(DEVICES["cpu"], "cpu", memory, memory, DEVICES["cpu"].dtypes)
    core = native.load()
    return replace(facts, has_cpu_core=core is not None, has_tiles=core is not None and native.TILES in core.variants())


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _resembling(name: str) -> DeviceFacts:
    lowered = name.lower()
    return next((DEVICES[known] for known in ("h200", "h100", "l4", "a10g") if known in lowered), DEVICES["a100-80gb"])


def _facts(like: DeviceFacts, name: str, memory: int, host_memory: int, dtypes: tuple[str, ...]) -> DeviceFacts:
    return replace(like, name=name, memory_bytes=memory, host_memory_bytes=host_memory, dtypes=dtypes)
