"""Devices for quire that torch has a backend for: Apple's GPUs, Intel's GPUs, and a CPU without quire's native core."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from quire.config.devices import DEVICES
from quire.config.facts import DeviceFacts
from quire.worker.device_plugin import DevicePlugin

if TYPE_CHECKING:
    import torch

QUIRE_PLUGIN_API = 1


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class PlainCpu(DevicePlugin):
    """CPU tensors under another name: runs anywhere, and shows what a device without kernels of quire's own is like."""

    lacks = ("the native core of CPUs",)

    def count(self) -> int:
        return 1

    def device(self, index: int) -> "torch.device":
        import torch

        return torch.device("cpu")

    def facts(self, index: int) -> DeviceFacts:
        memory = _host_memory()
        return replace(
            DEVICES["cpu"], name="plain-cpu", memory_bytes=memory, host_memory_bytes=memory, has_cpu_core=False
        )


class Mps(DevicePlugin):
    """Apple's GPUs. They share the host's memory; torch has neither float64 nor fp8 there."""

    lacks = ("fp8 and bfloat16 in some versions of macOS", "attention faster than plain torch's")

    def count(self) -> int:
        import torch

        return int(torch.backends.mps.is_available())

    def device(self, index: int) -> "torch.device":
        import torch

        return torch.device("mps", index)

    def facts(self, index: int) -> DeviceFacts:
        memory = _host_memory()
        return replace(
            DEVICES["cpu"],
            name="mps",
            memory_bytes=memory,
            host_memory_bytes=memory,
            bandwidth=200e9,
            flops=5e12,
            dtypes=("float32", "float16"),
            has_cpu_core=False,
        )


class Xpu(DevicePlugin):
    """Intel's GPUs, in a build of torch that knows them."""

    lacks = ("attention faster than plain torch's",)

    def count(self) -> int:
        import torch

        return torch.xpu.device_count() if torch.xpu.is_available() else 0

    def device(self, index: int) -> "torch.device":
        import torch

        return torch.device("xpu", index)

    def facts(self, index: int) -> DeviceFacts:
        import torch

        properties = torch.xpu.get_device_properties(index)
        return replace(
            DEVICES["cpu"],
            name=properties.name,
            memory_bytes=properties.total_memory,
            host_memory_bytes=_host_memory(),
            bandwidth=400e9,
            flops=50e12,
            dtypes=("float32", "float16", "bfloat16"),
            has_cpu_core=False,
        )

    def used_memory(self, index: int) -> tuple[int, int]:
        import torch

        free, total = torch.xpu.mem_get_info(index)
        return total - free, total


PLAIN_CPU, MPS, XPU = PlainCpu(), Mps(), Xpu()
