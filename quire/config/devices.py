"""Devices known by name, for planning and simulating without having one.

Memory is what the driver reports to programs, which differs a little from the number on the box. The H200's speeds are
measured (docs/performance.md); the others are the vendor's peak times the fraction the H200 reached of its own.
"""

from collections.abc import Mapping
from dataclasses import replace

from quire.config.facts import DeviceFacts
from quire.config.links import INFINIBAND_HDR, INFINIBAND_NDR, NVLINK_3, NVLINK_4, PCIE_4, SHARED_MEMORY, Link
from quire.config.sizes import GIB, parse_size
from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean

_REACHED_BANDWIDTH = 4.3 / 4.8
_REACHED_FLOPS = 790 / 989
_PCIE_4 = 25e9
_PCIE_5 = 50e9
_16_BIT = ("float32", "float16", "bfloat16")
_WITH_FP8 = (*_16_BIT, "float8_e4m3fn")


def dtypes_of(capability: tuple[int, int]) -> tuple[str, ...]:
    """What an NVIDIA GPU of a compute capability computes in: bfloat16 since Ampere (8.0), fp8 since Ada (8.9)."""
    if capability >= (8, 9):
        return _WITH_FP8
    return _16_BIT if capability >= (8, 0) else ("float32", "float16")


def _gpu(
    name: str,
    memory: float,
    bandwidth: float,
    flops: float,
    host: float,
    host_memory: int,
    dtypes: tuple[str, ...],
    links: tuple[Link, Link],
) -> DeviceFacts:
    return DeviceFacts(
        name=name,
        kind="cuda",
        memory_bytes=int(memory * GIB),
        bandwidth=bandwidth * _REACHED_BANDWIDTH,
        flops=flops * _REACHED_FLOPS,
        host_bandwidth=host,
        host_memory_bytes=host_memory * GIB,
        step_overhead=1e-3,  # vLLM on an H200: 4.9 ms a token of llama-8b against 3.95 ms of GEMMs
        dtypes=dtypes,
        link=links[0],
        link_between_hosts=links[1],
    )


_CPU = DeviceFacts(
    name="cpu",
    kind="cpu",
    memory_bytes=16 * GIB,
    bandwidth=24e9,
    flops=0.1e12,
    host_bandwidth=12e9,  # a copy reads and writes the same memory
    host_memory_bytes=16 * GIB,
    step_overhead=0.5e-3,
    dtypes=("float32", "bfloat16"),
    has_cpu_core=True,
    link=SHARED_MEMORY,
)

DEVICES: Mapping[str, DeviceFacts] = {
    device.name: device
    for device in (
        _CPU,
        _gpu("l4", 22.0, 300e9, 121e12, _PCIE_4, 64, _WITH_FP8, (PCIE_4, INFINIBAND_HDR)),
        _gpu("a10g", 22.0, 600e9, 70e12, _PCIE_4, 64, _16_BIT, (PCIE_4, INFINIBAND_HDR)),
        _gpu("a100-40gb", 39.4, 1.555e12, 312e12, _PCIE_4, 128, _16_BIT, (NVLINK_3, INFINIBAND_HDR)),
        _gpu("a100-80gb", 79.1, 2.039e12, 312e12, _PCIE_4, 128, _16_BIT, (NVLINK_3, INFINIBAND_HDR)),
        _gpu("h100", 79.1, 3.35e12, 989e12, _PCIE_5, 256, _WITH_FP8, (NVLINK_4, INFINIBAND_NDR)),
        _gpu("h200", 139.7, 4.8e12, 989e12, _PCIE_5, 256, _WITH_FP8, (NVLINK_4, INFINIBAND_NDR)),
    )
}


def find_device(name: str, memory: str | None = None) -> DeviceFacts:
    """The device called `name`, with `memory` (such as `24GB`) instead of its own where that is given."""
    known = name.lower()
    if known not in DEVICES:
        names = ", ".join(DEVICES)
        raise ConfigError(f"--device is {name!r}, but it must be one of {names}.{did_you_mean(known, DEVICES)}")
    device = DEVICES[known]
    if memory is None:
        return device
    size = parse_size(memory, "--device-memory")
    host = size if device.kind == "cpu" else device.host_memory_bytes
    return replace(device, memory_bytes=size, host_memory_bytes=host)
